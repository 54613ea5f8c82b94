/* The text language: what is printed parses to an equal program, errors say where and what, and no
 * bytes make the parser fail otherwise.
 *
 * Usage: test_text_language. UNCOPY_TEST_SCALE=n multiplies the number of mutated programs. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "check.h"
#include "ir/text.h"
#include "ir/text_number.h"

static const char *const rich =
    "program \"all of it\"\n"
    "argument w_buffer bf16[256]\n"
    "argument x f32[n,8](s,1)\n"
    "argument y f32[3,4](1,3)\n"
    "view w1 = w_buffer bf16[8,16] +256\n"
    "view tail = x f32[n // 2,n % 3 + 1](8,1) +(n - n // 2) * 8 * 4\n"
    "view around = x f32[2](max(n, s - (n - 1)) * 2) +min(4, n) from storage\n"
    "constant c f32[2,2] = 1.0, -0.5, +inf, 0x7fc00001\n"
    "constant none i64[0] =\n"
    "constant odd f8e4m3fn[3] = 0x01, 0xff, 0x80\n"
    "constant long i64[2] = -9223372036854775808, 9223372036854775807\n"
    "scratch h bf16[8,16]\n"
    "fresh o f32[n,8]\n"
    "group g \"0\" size 2 rank 1\n"
    "all_gather w1 -> w_buffer group g @ opp.py:34\n"
    "fence w_buffer @ opp.py:34\n"
    "order w1 after w_buffer @ \"odd \\\"name\\\".py\":35\n"
    "add x, x -> o alpha=2 @ /a-b/c+d~e.py:3\n"
    "mul o, 0.5 -> o\n"
    "add o, -3 -> o alpha=0.1 target \"aten.add.Tensor\" effects out outlayout id 4\n"
    "fill +nan -> h\n"
    "broadcast x -> o root=1 group g\n"
    "extern \"aten.foo.default\" reads x, 2, 1e-40, h writes w1 returns y effects audited raises "
    "random layout out threads outlayout id 3 @ f.py:9\n"
    "extern reads x\n"
    "output o\n"
    "output w1\n"
    "assume x = w_buffer +16\n"
    "assume y = w_buffer -8\n"
    "assume n = 16\n"
    "assume s = 8\n";

static uncopy_status_t parse(ir_program_t *program, const char *text)
{
    return ir_parse(program, &memory_system_allocator, text, strlen(text));
}

/* The program's text; the caller frees it with text_free. */
static char *print(const ir_program_t *program)
{
    text_t text;
    char *taken = NULL;
    text_init(&text, &memory_system_allocator);
    ir_print(program, &text);
    CHECK(text_take(&text, &taken) == UNCOPY_OK);
    return taken;
}

/* Parses text, prints, parses and prints again: both prints must be equal, and the first equal to
 * expected if it is not NULL. */
static void check_round_trip(const char *words, const char *expected)
{
    ir_program_t first;
    ir_program_t second;
    if (!CHECK(parse(&first, words) == UNCOPY_OK)) {
        printf("    %s\n", uncopy_last_message());
        return;
    }
    char *printed = print(&first);
    if (expected != NULL) {
        CHECK_EQUAL_TEXT(printed, expected);
    }
    if (CHECK(parse(&second, printed) == UNCOPY_OK)) {
        char *again = print(&second);
        CHECK_EQUAL_TEXT(again, printed);
        CHECK_EQUAL_I64((int64_t)second.num_views, (int64_t)first.num_views);
        CHECK_EQUAL_I64((int64_t)second.num_operations, (int64_t)first.num_operations);
        text_free(&memory_system_allocator, again);
        ir_program_release(&second);
    } else {
        printf("    %s\n%s", uncopy_last_message(), printed);
    }
    text_free(&memory_system_allocator, printed);
    ir_program_release(&first);
}

static void a_program_prints_as_it_was_written(void)
{
    check_round_trip(rich, rich);
    check_round_trip("program p", "program p\n");
}

static void blanks_comments_and_defaults_are_free(void)
{
    check_round_trip("\n  # nothing\n program p # name\r\n\n\targument a  f32 [ 2 , 3 ] ( 3,1 )\n"
                     "view b=a f32[2]+0\nadd a,a->a alpha=1.0\ngroup g \"x#y\" size 1\n"
                     "output a, b",
                     "program p\nargument a f32[2,3]\nview b = a f32[2]\n"
                     "group g \"x#y\" size 1 rank 0\nadd a, a -> a\noutput a\noutput b\n");
}

static void words_of_the_language_may_be_names(void)
{
    const char *text = "program program\nargument reads f32[min]\nargument effects f32[max,min]\n"
                       "argument inf f32[2]\nadd reads, reads -> effects effects out id 2\n"
                       "add inf, +inf -> inf\nextern reads reads, writes writes effects\n";
    ir_program_t program;
    CHECK(parse(&program, text) == UNCOPY_ERROR_PARSE);
    const char *fine = "program program\nargument reads f32[min]\nargument writes f32[max,min]\n"
                       "argument effects f32[2]\nargument inf f32[2]\n"
                       "add reads, reads -> effects effects out id 2\nadd inf, +inf -> inf\n"
                       "extern reads reads, writes writes effects effects out\n";
    check_round_trip(fine, fine);
}

static void symbols_of_any_place_are_written(void)
{
    /* m stands for dim 1, and is first mentioned at dim 0 */
    const char *text = "program p\nsymbol m = size 1 of argument 0\nargument a f32[m,m]\n"
                       "argument b f32[q,m * 2](t,1)\n"
                       "symbol u = stride 0 of argument 2\nargument c f32[4]\n"
                       "symbol z = size 3 of argument 3\n";
    check_round_trip(text, text);
}

static void large_expressions_are_named(void)
{
    ir_program_t program;
    uncopy_dim_t dim = 0;
    uncopy_view_t view = 0;
    CHECK(ir_program_init(&program, &memory_system_allocator, "deep") == UNCOPY_OK);
    CHECK(ir_add_symbol(&program, "n", 0, UNCOPY_SYMBOL_SIZE, 0, &dim) == UNCOPY_OK);
    uncopy_dim_t sizes[1] = {dim};
    uncopy_layout_t layout = {UNCOPY_DTYPE_F32, 1, sizes, NULL};
    CHECK(ir_add_argument(&program, "a", &layout, &view) == UNCOPY_OK);
    /* 2^60 nodes as a tree, and 1000 deep as a chain */
    for (int i = 0; i < 60; i++) {
        CHECK(ir_add_expression(&program, UNCOPY_EXPRESSION_MAXIMUM, dim, dim, &dim) == UNCOPY_OK);
    }
    for (int i = 0; i < 1000; i++) {
        CHECK(ir_add_expression(&program, UNCOPY_EXPRESSION_SUBTRACT, 3, dim, &dim) == UNCOPY_OK);
    }
    sizes[0] = dim;
    CHECK(ir_add_view(&program, "e0", view, &layout, 0, false, &view) == UNCOPY_OK);
    char *printed = print(&program);
    CHECK(strlen(printed) < 100000);
    check_round_trip(printed, printed);
    text_free(&memory_system_allocator, printed);
    ir_program_release(&program);
}

static void check_error(const char *text, uncopy_status_t code, const char *words)
{
    ir_program_t program;
    uncopy_status_t status = parse(&program, text);
    if (!CHECK(status == code) || !CHECK(strstr(uncopy_last_message(), words) != NULL)) {
        printf("    %s: %s\n    expected %s\n", text, uncopy_last_message(), words);
    }
    if (status == UNCOPY_OK) {
        ir_program_release(&program);
    }
}

#define HEAD "program p\nargument a f32[4]\n"

static void errors_name_line_found_and_expected(void)
{
    static const char *const cases[][2] = {
        {"", "line 1: found the end of the line, expected 'program'"},
        {"argument a f32[1]", "line 1: found 'argument', expected 'program'"},
        {"program", "found the end of the line, expected the program's name"},
        {"program p q", "line 1: found 'q', expected the end of the line"},
        {HEAD "argument b g32[1]", "line 3: found 'g32', expected a dtype"},
        {HEAD "argument b f32", "expected '['"},
        {HEAD "argument b f32[4", "expected ']'"},
        {HEAD "argument b f32[4,]", "expected an integer, a symbol"},
        {HEAD "argument b f32[4](1,1)", "expected as many strides as sizes"},
        {HEAD "argument b f32[2*k]", "found 'k', expected an integer, a symbol"},
        {HEAD "argument b f32[1,1,1,1,1,1,1,1,1,1,1,1,1]", "expected at most 12 dims"},
        {HEAD "argument b f32[99999999999999999999]", "expected an integer"},
        {HEAD "argument a f32[4]", "line 3: the name \"a\" is taken"},
        {HEAD "scratch s f32[k]", "found 'k'"},
        {HEAD "view v = b f32[1]", "found 'b', expected the name of a view declared above"},
        {HEAD "view v = a f32[1] +4 from a", "expected 'storage'"},
        {HEAD "constant c f32[2] = 1", "line 3: a constant is row-major"},
        {HEAD "constant c u8[1] = 256", "expected an element"},
        {HEAD "constant c u8[1] = -1", "expected an element"},
        {HEAD "constant c bool[1] = 2", "expected an element"},
        {HEAD "group g 0 size 2", "quoted"},
        {HEAD "group g \"0\" size 2 rank 2", "rank 2 of 2"},
        {HEAD "group g \"0\" size 2\ngroup g \"1\" size 2", "line 4: found 'g', expected a name"},
        {HEAD "frobnicate a", "found 'frobnicate', expected a declaration or an operation"},
        {HEAD "add a, a - a", "found '-', expected the end of the line"},
        {HEAD "add a, a -> a frob 3", "found '3', expected '='"},
        {HEAD "add a, 0x -> a", "expected a number"},
        {HEAD "all_gather a -> a group h", "expected the name of a group"},
        {HEAD "extern \"x reads a", "found '\"x reads a'"},
        {HEAD "extern \"\\x00\"", "expected the host's name of the operation"},
        {HEAD "add a, a -> a @ f.py", "expected ':'"},
        {HEAD "add a, a -> a effects", "expected the name of an effect"},
        {HEAD "assume b = a", "found 'b'"},
        {HEAD "assume a = 3", "found 'a', expected the name of a symbol"},
        {HEAD "view v = a f32[1]\nassume v = a", "expected the name of an argument"},
        {HEAD "dim a = 1\ndim a = 2", "line 4: found 'a'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_error(cases[i][0], UNCOPY_ERROR_PARSE, cases[i][1]);
    }
    check_error(HEAD "add a, a -> a beta=2", UNCOPY_ERROR_PROGRAM, "line 3: add");
}

static void nesting_is_bounded(void)
{
    enum { DEPTH = 100000 };
    char *text = malloc(2 * DEPTH + 64);
    if (!CHECK(text != NULL)) {
        return;
    }
    int start = sprintf(text, "program p\nscratch a f32[");
    memset(text + start, '(', DEPTH);
    (void)strcpy(text + start + DEPTH, "1");
    check_error(text, UNCOPY_ERROR_PARSE, "nested less deeply");
    memset(text + start, '-', DEPTH);
    check_error(text, UNCOPY_ERROR_PARSE, "nested less deeply");
    for (int i = 0; i < DEPTH; i += 4) {
        memcpy(text + start + i, "min(", 4);
    }
    check_error(text, UNCOPY_ERROR_PARSE, "nested less deeply");
    free(text);
}

/* ---- numbers ---- */

static void check_element(uncopy_dtype_t dtype, uint64_t bits, const char *expected)
{
    char buffer[NUMBER_TEXT_BYTES];
    uint64_t element[2] = {bits, 0};
    uint64_t back[2] = {0, 0};
    number_format_element(dtype, element, buffer);
    if (expected != NULL) {
        CHECK_EQUAL_TEXT(buffer, expected);
    }
    bool is_negative = buffer[0] == '-';
    const char *digits = buffer + (is_negative || buffer[0] == '+' ? 1 : 0);
    CHECK(number_parse_element(dtype, digits, strlen(digits), is_negative, back));
    CHECK_EQUAL_I64((int64_t)back[0], (int64_t)bits);
}

static void elements_are_exact(void)
{
    for (uint64_t bits = 0; bits < 0x10000; bits++) {
        check_element(UNCOPY_DTYPE_F16, bits, NULL);
        check_element(UNCOPY_DTYPE_BF16, bits, NULL);
    }
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 0x10001f) {
        check_element(UNCOPY_DTYPE_F32, bits, NULL);
        check_element(UNCOPY_DTYPE_F64, bits * 0x100000001u, NULL);
        check_element(UNCOPY_DTYPE_C64, bits * 0x100000001u, NULL);
    }
    check_element(UNCOPY_DTYPE_F32, 0x3dcccccd, "0.1");
    check_element(UNCOPY_DTYPE_F32, 0x80000000, "-0.0");
    check_element(UNCOPY_DTYPE_F32, 0x7f800000, "+inf");
    check_element(UNCOPY_DTYPE_F32, 0x7fc00000, "+nan");
    check_element(UNCOPY_DTYPE_F32, 0x7fa00000, "0x7fa00000");
    check_element(UNCOPY_DTYPE_BOOL, 2, "0x02");
    check_element(UNCOPY_DTYPE_U64, UINT64_MAX, "18446744073709551615");
    check_element(UNCOPY_DTYPE_I8, 0x80, "-128");
    check_element(UNCOPY_DTYPE_C32, 0x3c00bc00, "0x3c00bc00");
}

static uint64_t encoded(uncopy_dtype_t dtype, double value)
{
    uint64_t bits = 0;
    number_encode(dtype, value, &bits);
    return bits;
}

static void small_floats_round_to_nearest_even_once(void)
{
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 65519.99), 0x7bff);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 65520.0), 0x7c00);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 1.0 + 0x1p-11), 0x3c00);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 1.0 + 0x1p-11 + 0x1p-40), 0x3c01);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 1.0 + 3 * 0x1p-11), 0x3c02);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 0x1p-25), 0);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 0x1.8p-25), 1);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, -0x1p-24), 0x8001);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_F16, 0x1.ffep-15), 0x400);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_BF16, 0x1p-133), 1);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_BF16, DBL_MAX), 0x7f80);
    CHECK_EQUAL_I64((int64_t)encoded(UNCOPY_DTYPE_BF16, (double)NAN) & 0x7fff, 0x7fc0);
}

/* ---- any bytes ---- */

static uint64_t random_state = 20240229;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Words that are likely to bring the parser somewhere. */
static const char *const snippets[] = {"[",
                                       "]",
                                       "(",
                                       ")",
                                       ",",
                                       "->",
                                       "\"",
                                       "\\x",
                                       "@",
                                       "\n",
                                       "+",
                                       "-",
                                       "//",
                                       "n",
                                       "x",
                                       "min(",
                                       "0x",
                                       "1e",
                                       "9999999999999999999",
                                       " view ",
                                       " from ",
                                       " dim ",
                                       "w1",
                                       "\0",
                                       "#",
                                       "=",
                                       "f32",
                                       " id ",
                                       "symbol ",
                                       ".",
                                       "after",
                                       "*"};

static void mutate(char *text, size_t *length, size_t room)
{
    size_t at = (size_t)(next_random() % (*length + 1));
    const char *snippet = snippets[next_random() % (sizeof(snippets) / sizeof(snippets[0]))];
    size_t size = snippet[0] == '\0' ? 1 : strlen(snippet);
    size_t cut = (size_t)(next_random() % 8);
    cut = cut < *length - at ? cut : *length - at;
    switch (next_random() % 4) {
    case 0:
        if (at < *length) {
            text[at] = (char)next_random();
        }
        break;
    case 1:
        memmove(text + at, text + at + cut, *length - at - cut);
        *length -= cut;
        break;
    case 2:
        if (*length + size < room) {
            memmove(text + at + size, text + at, *length - at);
            memcpy(text + at, snippet, size);
            *length += size;
        }
        break;
    default:
        if (at + 2 * cut <= *length) {
            memmove(text + at, text + at + cut, cut);
        }
        break;
    }
}

static void mutated_programs_parse_or_say_why(void)
{
    const char *scale = getenv("UNCOPY_TEST_SCALE");
    int num_rounds = (int)(20000 * (scale == NULL ? 1.0 : strtod(scale, NULL)));
    size_t room = strlen(rich) + 256;
    int num_parsed = 0;
    for (int round = 0; round < num_rounds; round++) {
        size_t length = strlen(rich);
        char *text = malloc(room);
        memcpy(text, rich, length);
        for (uint64_t i = next_random() % 4 + 1; i > 0; i--) {
            mutate(text, &length, room);
        }
        /* An exact block, so that a read past the end is seen by the sanitizer. */
        char *exact = malloc(length + (length == 0));
        memcpy(exact, text, length);
        ir_program_t program;
        uncopy_status_t status = ir_parse(&program, &memory_system_allocator, exact, length);
        free(exact);
        free(text);
        if (status == UNCOPY_OK) {
            num_parsed++;
            char *printed = print(&program);
            check_round_trip(printed, printed);
            text_free(&memory_system_allocator, printed);
            ir_program_release(&program);
        } else {
            CHECK(status == UNCOPY_ERROR_PARSE || status == UNCOPY_ERROR_PROGRAM);
            CHECK(strncmp(uncopy_last_message(), "line ", 5) == 0);
        }
    }
    CHECK(num_parsed >= num_rounds / 100);
}

/* ---- no memory ---- */

typedef struct limit {
    int64_t left;
    int64_t live;
} limit_t;

static void *limited_allocate(void *self, size_t size)
{
    limit_t *limit = self;
    if (limit->left-- <= 0) {
        return NULL;
    }
    limit->live++;
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void limited_release(void *self, void *pointer, size_t size)
{
    limit_t *limit = self;
    (void)size;
    limit->live--;
    free(pointer);
}

static void no_memory_is_an_error_at_every_allocation(void)
{
    uncopy_status_t status = UNCOPY_ERROR_MEMORY;
    for (int64_t n = 0; status != UNCOPY_OK && n < 1000; n++) {
        limit_t limit = {n, 0};
        uncopy_allocator_t allocator = {&limit, limited_allocate, limited_release};
        ir_program_t program;
        status = ir_parse(&program, &allocator, rich, strlen(rich));
        if (status == UNCOPY_OK) {
            text_t text;
            char *taken = NULL;
            text_init(&text, &allocator);
            ir_print(&program, &text);
            status = text_take(&text, &taken);
            text_free(&allocator, taken);
            ir_program_release(&program);
        }
        CHECK(status == UNCOPY_OK || status == UNCOPY_ERROR_MEMORY);
        CHECK_EQUAL_I64(limit.live, 0);
    }
    CHECK(status == UNCOPY_OK);
}

int main(void)
{
    a_program_prints_as_it_was_written();
    blanks_comments_and_defaults_are_free();
    words_of_the_language_may_be_names();
    symbols_of_any_place_are_written();
    large_expressions_are_named();
    errors_name_line_found_and_expected();
    nesting_is_bounded();
    elements_are_exact();
    small_floats_round_to_nearest_even_once();
    mutated_programs_parse_or_say_why();
    no_memory_is_an_error_at_every_allocation();
    return check_finish("text_language");
}
