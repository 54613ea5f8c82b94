/* The public face: wrong calls are answered in words, logs arrive, plans are bounded. */
#include "check.h"
#include "uncopy/uncopy.h"

#include <string.h>

static const char forwarded[] = "program f\n"
                                "argument a f32[8]\n"
                                "argument v f32[8]\n"
                                "scratch t f32[8]\n"
                                "add a, 1 -> t @ f.py:1\n"
                                "copy t -> v @ f.py:2\n"
                                "output v\n";
static const char kept[] = "program k\n"
                           "argument v f32[4,4]\n"
                           "argument w f32[4,4]\n"
                           "scratch t f32[4,4]\n"
                           "matmul v, w -> t @ k.py:1\n"
                           "copy t -> v @ k.py:2\n";

typedef struct lines {
    int infos, warnings;
    char last[512];
} lines_t;

static void write_line(void *self, uncopy_log_level_t level, const char *line)
{
    lines_t *lines = self;
    lines->infos += level == UNCOPY_LOG_INFO;
    lines->warnings += level == UNCOPY_LOG_WARNING;
    (void)strncpy(lines->last, line, sizeof(lines->last) - 1);
}

static uncopy_argument_t vector(float *data, const int64_t *size)
{
    uncopy_argument_t argument = {data, NULL, -1, UNCOPY_DTYPE_F32, 1, size, NULL};
    return argument;
}

static void a_copy_that_stays_is_logged(void)
{
    lines_t lines = {0, 0, ""};
    uncopy_log_t log = {&lines, write_line};
    uncopy_context_t *context = NULL;
    uncopy_program_t *program = NULL;
    uncopy_plan_t *plan = NULL;
    CHECK(uncopy_context_create(NULL, &log, &context) == UNCOPY_OK);
    CHECK(uncopy_program_parse(context, kept, strlen(kept), &program) == UNCOPY_OK);
    CHECK(uncopy_plan_create(program, NULL, NULL, 0, &plan) == UNCOPY_OK);
    CHECK_EQUAL_I64(lines.infos, 1);
    CHECK_EQUAL_I64(lines.warnings, 1);
    CHECK(strstr(lines.last, "operand-overlap") != NULL);
    CHECK(strstr(lines.last, "k.py:2") != NULL);
    uncopy_plan_release(plan);
    uncopy_program_release(program);
    uncopy_context_release(context);
}

static void wrong_calls_are_answered_in_words(uncopy_context_t *context)
{
    uncopy_context_t *other = NULL;
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    uncopy_log_t no_write = {NULL, NULL};
    CHECK(uncopy_context_create(NULL, &no_write, &other) == UNCOPY_ERROR_ARGUMENT);
    CHECK(uncopy_program_parse(context, "nonsense", 8, &program) == UNCOPY_ERROR_PARSE);
    CHECK(strstr(uncopy_last_message(), "1") != NULL); /* the line */
    CHECK(uncopy_program_parse(context, NULL, 0, &program) == UNCOPY_ERROR_ARGUMENT);
    CHECK(program == NULL);
    CHECK(uncopy_program_parse(context, forwarded, strlen(forwarded), &program) == UNCOPY_OK);
    CHECK(uncopy_function_create(program, NULL, NULL, &function) == UNCOPY_OK);
    CHECK(uncopy_program_add_output(program, 0) == UNCOPY_ERROR_ARGUMENT); /* frozen */
    CHECK(uncopy_function_run(function, NULL, 2, NULL, NULL, NULL) == UNCOPY_ERROR_ARGUMENT);
    static const int64_t eight = 8, seven = 7;
    float a[8] = {0}, v[8] = {0};
    uncopy_argument_t arguments[2] = {vector(a, &eight), vector(v, &seven)};
    CHECK(uncopy_function_run(function, arguments, 2, NULL, NULL, NULL) == UNCOPY_ERROR_ARGUMENT);
    CHECK(strstr(uncopy_last_message(), "7") != NULL);
    CHECK(uncopy_function_run(function, arguments, 1, NULL, NULL, NULL) == UNCOPY_ERROR_ARGUMENT);
    arguments[1] = vector(v, &eight);
    arguments[1].storage_bytes = 12;
    CHECK(uncopy_function_run(function, arguments, 2, NULL, NULL, NULL) == UNCOPY_ERROR_RANGE);
    CHECK(v[0] == 0);
    for (int code = 0; code <= UNCOPY_ERROR_SYSTEM; code++) {
        CHECK(strlen(uncopy_status_name((uncopy_status_t)code)) > 0);
        CHECK(strlen(uncopy_status_advice((uncopy_status_t)code)) > 0);
    }
    uncopy_function_release(function);
    uncopy_program_release(program);
}

static void nothing_in_the_place_of_something_is_an_error(uncopy_context_t *context)
{
    uncopy_program_t *program = NULL;
    uncopy_plan_t *plan = NULL;
    uncopy_copy_t copy;
    char *text = NULL;
    const uncopy_status_t refused = UNCOPY_ERROR_ARGUMENT;
    CHECK(uncopy_program_create(context, "p", NULL) == refused);
    CHECK(uncopy_program_create(NULL, "p", &program) == refused);
    CHECK(uncopy_program_parse(context, forwarded, strlen(forwarded), NULL) == refused);
    CHECK(uncopy_program_print(NULL, &text) == refused);
    CHECK(uncopy_program_verify(NULL) == refused);
    CHECK(uncopy_program_num_arguments(NULL) == 0 && uncopy_program_num_outputs(NULL) == 0);
    CHECK(uncopy_program_parse(context, forwarded, strlen(forwarded), &program) == UNCOPY_OK);
    CHECK(uncopy_program_print(program, NULL) == refused);
    CHECK(uncopy_plan_create(program, NULL, NULL, 2, &plan) == UNCOPY_OK);
    CHECK(uncopy_plan_print(NULL, &text) == refused && uncopy_plan_print(plan, NULL) == refused);
    CHECK(uncopy_plan_explain(NULL, &text) == refused);
    CHECK(uncopy_plan_explain(plan, NULL) == refused);
    CHECK(uncopy_plan_copy(NULL, 0, &copy) == refused);
    CHECK(uncopy_plan_num_copies(NULL) == 0 && uncopy_plan_num_externs(NULL) == 0);
    CHECK(uncopy_plan_output(NULL, 0) == NULL && uncopy_plan_extern(NULL, 0, NULL, NULL) == NULL);
    CHECK(uncopy_plan_writes_argument(NULL, 0) == 0);
    CHECK(uncopy_function_num_plans(NULL) == 0 && uncopy_function_plan_at(NULL, 0) == NULL);
    CHECK(uncopy_plan_run(NULL, NULL, NULL, 0, NULL, NULL) == refused);
    uncopy_plan_release(plan);
    uncopy_program_release(program);
}

static void options_that_do_not_exist_are_refused(uncopy_context_t *context)
{
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    uncopy_plan_t *plan = NULL;
    CHECK(uncopy_program_parse(context, forwarded, strlen(forwarded), &program) == UNCOPY_OK);
    const uncopy_options_t wrong[] = {{.order = (uncopy_order_t)5},
                                      {.kernels = (uncopy_kernels_t)2},
                                      {.strict = 1 << 3},
                                      {.passes_off = 1U << 31},
                                      {.threads = -1}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK(uncopy_function_create(program, &wrong[i], NULL, &function) == UNCOPY_ERROR_ARGUMENT);
        CHECK(uncopy_plan_create(program, &wrong[i], NULL, 2, &plan) == UNCOPY_ERROR_ARGUMENT);
    }
    CHECK(function == NULL && plan == NULL);
    uncopy_program_release(program);
}

/* Nothing is run: the addresses are no memory. */
static void arguments_beyond_memory_or_without_sizes_are_refused(uncopy_context_t *context)
{
    static const int64_t eight = 8;
    float v[8] = {0};
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    CHECK(uncopy_program_parse(context, forwarded, strlen(forwarded), &program) == UNCOPY_OK);
    CHECK(uncopy_function_create(program, NULL, NULL, &function) == UNCOPY_OK);
    uncopy_argument_t arguments[2] = {vector(v, &eight), vector(v, &eight)};
    const uintptr_t places[] = {UINTPTR_MAX - 7, (uintptr_t)INTPTR_MAX - 7};
    for (int i = 0; i < 2; i++) {
        for (int64_t bytes = -1; bytes < 64; bytes += 33) {
            arguments[0].data = arguments[0].storage = (void *)places[i];
            arguments[0].storage_bytes = bytes;
            CHECK(uncopy_function_run(function, arguments, 2, NULL, NULL, NULL) ==
                  UNCOPY_ERROR_RANGE);
        }
    }
    arguments[0] = vector(v, NULL);
    CHECK(uncopy_function_run(function, arguments, 2, NULL, NULL, NULL) == UNCOPY_ERROR_ARGUMENT);
    uncopy_function_release(function);
    uncopy_program_release(program);
}

static void a_block_for_an_output_is_not_lost(uncopy_context_t *context)
{
    static const char text[] = "program s\nargument a f32[8]\nfresh o f32[8]\n"
                               "neg a -> o\noutput o\n";
    static const int64_t eight = 8;
    float a[8] = {0};
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    CHECK(uncopy_program_parse(context, text, strlen(text), &program) == UNCOPY_OK);
    CHECK(uncopy_function_create(program, NULL, NULL, &function) == UNCOPY_OK);
    uncopy_argument_t argument = vector(a, &eight);
    CHECK(uncopy_function_run(function, &argument, 1, NULL, NULL, NULL) == UNCOPY_ERROR_ARGUMENT);
    CHECK(strstr(uncopy_last_message(), "outputs") != NULL);
    uncopy_function_release(function);
    uncopy_program_release(program);
}

/* v slides over a: each distance is a fact of its own, and the number of plans stays bounded. */
static void plans_are_bounded(uncopy_context_t *context)
{
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    static const int64_t four = 4;
    static const char text[] = "program s\n"
                               "argument a f32[4]\n"
                               "argument v f32[4]\n"
                               "argument w f32[4]\n"
                               "scratch t f32[4]\n"
                               "add a, 1 -> t\n"
                               "mul v, 2 -> w\n"
                               "copy t -> v\n";
    CHECK(uncopy_program_parse(context, text, strlen(text), &program) == UNCOPY_OK);
    CHECK(uncopy_function_create(program, NULL, NULL, &function) == UNCOPY_OK);
    static float memory[64];
    for (int round = 0; round < 300; round++) {
        int v = round % 9;
        int w = 20 + round % 7;
        int a = 18 + round % 5;
        uncopy_argument_t arguments[3] = {vector(memory + a, &four), vector(memory + v, &four),
                                          vector(memory + w, &four)};
        uncopy_status_t status = uncopy_function_run(function, arguments, 3, NULL, NULL, NULL);
        CHECK(status == UNCOPY_OK || status == UNCOPY_ERROR_UNSUPPORTED);
    }
    CHECK(uncopy_function_num_plans(function) <= UNCOPY_FUNCTION_MAX_PLANS);
    uncopy_counts_t counts;
    uncopy_function_counts(function, &counts);
    CHECK(counts.calls > 0);
    CHECK(counts.plans >= 1);
    uncopy_plan_t *none = uncopy_function_plan_at(function, UNCOPY_FUNCTION_MAX_PLANS);
    CHECK(none == NULL);
    uncopy_function_release(function);
    uncopy_program_release(program);
}

static void a_plan_names_the_pair_that_changed(uncopy_context_t *context)
{
    uncopy_program_t *program = NULL;
    uncopy_plan_t *plan = NULL;
    static const int64_t eight = 8;
    static float memory[32];
    CHECK(uncopy_program_parse(context, forwarded, strlen(forwarded), &program) == UNCOPY_OK);
    uncopy_argument_t apart[2] = {vector(memory, &eight), vector(memory + 16, &eight)};
    uncopy_argument_t shifted[2] = {vector(memory, &eight), vector(memory + 4, &eight)};
    CHECK(uncopy_plan_create(program, NULL, apart, 2, &plan) == UNCOPY_OK);
    CHECK(uncopy_plan_run(plan, NULL, apart, 2, NULL, NULL) == UNCOPY_OK);
    CHECK(memory[16] == 1);
    CHECK(uncopy_plan_run(plan, NULL, shifted, 2, NULL, NULL) == UNCOPY_ERROR_FACTS);
    CHECK(strstr(uncopy_last_message(), "(a)") != NULL);
    CHECK(strstr(uncopy_last_message(), "(v)") != NULL);
    uncopy_plan_release(plan);
    uncopy_program_release(program);
}

static uncopy_argument_t integer(int64_t *value)
{
    return (uncopy_argument_t){.data = value, .storage_bytes = 8, .dtype = UNCOPY_DTYPE_I64};
}

/* n is no tensor's size: the call gives it, below zero if it likes, and plans know what follows. */
static void values_of_a_call_decide_sizes_and_numbers(uncopy_context_t *context)
{
    uncopy_program_t *program = NULL;
    uncopy_plan_t *plan = NULL;
    uncopy_function_t *function = NULL;
    uncopy_dim_t n = 0, size = 0, twice = 0;
    uncopy_view_t view = 0, a = 0, first = 0;
    size_t number = 7;
    const int64_t eight = 8;
    uncopy_layout_t scalar = {.dtype = UNCOPY_DTYPE_I64};
    uncopy_layout_t all = {.dtype = UNCOPY_DTYPE_F32, .rank = 1, .sizes = &eight};
    uncopy_layout_t some = {.dtype = UNCOPY_DTYPE_F32, .rank = 1, .sizes = &size};
    CHECK(uncopy_program_create(context, "values", &program) == UNCOPY_OK);
    CHECK(uncopy_program_add_symbol(program, "n", 0, UNCOPY_SYMBOL_VALUE, 0, &n) == UNCOPY_OK);
    CHECK(uncopy_program_add_argument(program, "n_int", &scalar, &view) == UNCOPY_OK);
    CHECK(uncopy_program_add_argument(program, "a", &all, &a) == UNCOPY_OK);
    CHECK(uncopy_program_add_expression(program, UNCOPY_EXPRESSION_MAXIMUM, n, 1, &size) ==
          UNCOPY_OK);
    CHECK(uncopy_program_add_expression(program, UNCOPY_EXPRESSION_MULTIPLY, n, 2, &twice) ==
          UNCOPY_OK);
    CHECK(uncopy_program_add_view(program, "first", a, &some, 0, 0, &first) == UNCOPY_OK);
    CHECK(uncopy_program_add_number(program, twice, &number) == UNCOPY_OK);
    CHECK_EQUAL_I64((int64_t)number, 0);
    CHECK(uncopy_program_add_number(program, -9, &number) == UNCOPY_ERROR_ARGUMENT);
    CHECK_EQUAL_I64((int64_t)uncopy_program_num_numbers(program), 1);
    CHECK(uncopy_program_add_output(program, first) == UNCOPY_OK);
    CHECK(uncopy_plan_create(program, NULL, NULL, 0, &plan) == UNCOPY_ERROR_PROGRAM);
    CHECK(uncopy_function_create(program, NULL, NULL, &function) == UNCOPY_OK);
    static float memory[8];
    static const int64_t values[] = {3, -2, 8, 3};
    for (size_t i = 0; i < 4; i++) {
        int64_t value = values[i];
        uncopy_argument_t arguments[2] = {integer(&value), vector(memory, &eight)};
        CHECK(uncopy_function_plan(function, arguments, 2, &plan) == UNCOPY_OK);
        CHECK_EQUAL_I64(uncopy_plan_number(plan, 0), 2 * value);
        CHECK_EQUAL_I64(uncopy_plan_number(plan, 1), 0);
        CHECK_EQUAL_I64(uncopy_plan_output(plan, 0)->bound.sizes[0], value > 1 ? value : 1);
        uncopy_plan_release(plan);
    }
    CHECK_EQUAL_I64((int64_t)uncopy_function_num_plans(function), 3);
    uncopy_argument_t wrong[2] = {vector(memory, &eight), vector(memory, &eight)};
    CHECK(uncopy_function_plan(function, wrong, 2, &plan) == UNCOPY_ERROR_ARGUMENT);
    uncopy_function_release(function);
    uncopy_program_release(program);
}

int main(void)
{
    uncopy_context_t *context = NULL;
    a_copy_that_stays_is_logged();
    CHECK(uncopy_context_create(NULL, NULL, &context) == UNCOPY_OK);
    wrong_calls_are_answered_in_words(context);
    nothing_in_the_place_of_something_is_an_error(context);
    options_that_do_not_exist_are_refused(context);
    arguments_beyond_memory_or_without_sizes_are_refused(context);
    a_block_for_an_output_is_not_lost(context);
    plans_are_bounded(context);
    a_plan_names_the_pair_that_changed(context);
    values_of_a_call_decide_sizes_and_numbers(context);
    uncopy_context_release(context);
    return check_finish("api");
}
