/* A flat buffer that holds two weights, refilled inside the program, without Python.
 *
 * o = (x @ w1) @ w2, where the buffer is refilled with new weights between the two products. w1 and
 * w2 are arguments of their own: the program does not say that they lie in the buffer, the
 * addresses of each call do. The program is built twice, by calls and from text, and each is called
 * with
 *
 *   1. w1 and w2 in the buffer. The copy into it is removed: new weights are scaled straight into
 *      the buffer, and for that the product that reads the old ones is moved up;
 *   2. w1 and w2 elsewhere. The reason to move the product up is gone: planned anew;
 *   3. w1 and w2 in the buffer the other way round: the first plan serves this call too;
 *   4. all as at first: it serves again.
 *
 * Prints plans and counts; exits with 0 when values, plans and counts are right. */
#include <stdio.h>
#include <string.h>

#include "uncopy/uncopy.h"

enum { ROWS = 2, INNER = 4, OUTER = 6, WEIGHTS = 2 * INNER * OUTER };

/* Says what failed and what may be done; 1 for a failure. */
static int failed(uncopy_status_t status, const char *what)
{
    if (status == UNCOPY_OK) {
        return 0;
    }
    (void)fprintf(stderr, "%s: %s: %s (%s)\n", what, uncopy_status_name(status),
                  uncopy_last_message(), uncopy_status_advice(status));
    return 1;
}

static uncopy_operand_t read_view(uncopy_view_t view)
{
    uncopy_operand_t operand = {view, 0, 0, 0.0};
    return operand;
}

static uncopy_operand_t read_number(double number)
{
    uncopy_operand_t operand = {UNCOPY_NONE, 0, 0, number};
    return operand;
}

/* Appends result = operation(reads), with its line in this file. */
static uncopy_status_t add(uncopy_program_t *program, const char *name,
                           const uncopy_operand_t *reads, size_t num_reads, uncopy_view_t result,
                           int line)
{
    uncopy_operation_t operation;
    memset(&operation, 0, sizeof(operation));
    operation.name = name;
    operation.reads = reads;
    operation.num_reads = num_reads;
    operation.writes = &result;
    operation.num_writes = 1;
    operation.group = UNCOPY_NONE;
    operation.host_id = -1;
    operation.file = "refill.c";
    operation.line = line;
    return uncopy_program_add_operation(program, &operation);
}

static uncopy_status_t add_tensor(uncopy_program_t *program, const char *name, int is_argument,
                                  int32_t rank, const uncopy_dim_t *sizes, uncopy_view_t *out_view)
{
    uncopy_layout_t layout = {UNCOPY_DTYPE_F32, rank, sizes, NULL};
    if (is_argument) {
        return uncopy_program_add_argument(program, name, &layout, out_view);
    }
    return uncopy_program_add_storage(program, name, UNCOPY_STORAGE_SCRATCH, &layout, out_view);
}

/* The program by calls. What is in *out_program is the caller's to release, on failure too. */
static int build(uncopy_context_t *context, uncopy_program_t **out_program)
{
    static const uncopy_dim_t flat[] = {WEIGHTS};
    static const uncopy_dim_t x_sizes[] = {ROWS, INNER};
    static const uncopy_dim_t w1_sizes[] = {INNER, OUTER};
    static const uncopy_dim_t w2_sizes[] = {OUTER, INNER};
    static const uncopy_dim_t h_sizes[] = {ROWS, OUTER};
    uncopy_program_t *program = NULL;
    uncopy_view_t buffer, weights, x, w1, w2, t, h, o;
    if (failed(uncopy_program_create(context, "refill", &program), "create")) {
        return 1;
    }
    *out_program = program;
    if (failed(add_tensor(program, "buffer", 1, 1, flat, &buffer), "buffer") ||
        failed(add_tensor(program, "weights", 1, 1, flat, &weights), "weights") ||
        failed(add_tensor(program, "x", 1, 2, x_sizes, &x), "x") ||
        failed(add_tensor(program, "w1", 1, 2, w1_sizes, &w1), "w1") ||
        failed(add_tensor(program, "w2", 1, 2, w2_sizes, &w2), "w2") ||
        failed(add_tensor(program, "t", 0, 1, flat, &t), "t") ||
        failed(add_tensor(program, "h", 0, 2, h_sizes, &h), "h") ||
        failed(add_tensor(program, "o", 0, 2, x_sizes, &o), "o")) {
        return 1;
    }
    const uncopy_operand_t scaled[] = {read_view(weights), read_number(0.5)};
    const uncopy_operand_t refill[] = {read_view(t)};
    const uncopy_operand_t first[] = {read_view(x), read_view(w1)};
    const uncopy_operand_t second[] = {read_view(h), read_view(w2)};
    return failed(add(program, "mul", scaled, 2, t, __LINE__), "mul") ||
           failed(add(program, "matmul", first, 2, h, __LINE__), "matmul") ||
           failed(add(program, "copy", refill, 1, buffer, __LINE__), "copy") ||
           failed(add(program, "matmul", second, 2, o, __LINE__), "matmul") ||
           failed(uncopy_program_add_output(program, o), "output") ||
           failed(uncopy_program_verify(program), "verify");
}

/* The same as text. */
static const char text_form[] = "program refill\n"
                                "argument buffer f32[48]\n"
                                "argument weights f32[48]\n"
                                "argument x f32[2,4]\n"
                                "argument w1 f32[4,6]\n"
                                "argument w2 f32[6,4]\n"
                                "scratch t f32[48]\n"
                                "scratch h f32[2,6]\n"
                                "fresh o f32[2,4]\n"
                                "mul weights, 0.5 -> t @ refill.text:10\n"
                                "matmul x, w1 -> h     @ refill.text:11\n"
                                "copy t -> buffer      @ refill.text:12\n"
                                "matmul h, w2 -> o     @ refill.text:13\n"
                                "output o\n";

/* result[rows,columns] = a[rows,inner] @ b[inner,columns] the plain way. */
static void multiply(const float *a, const float *b, float *result, int rows, int inner,
                     int columns)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            float sum = 0;
            for (int k = 0; k < inner; k++) {
                sum += a[i * inner + k] * b[k * columns + j];
            }
            result[i * columns + j] = sum;
        }
    }
}

static uncopy_argument_t tensor(float *data, int32_t rank, const int64_t *sizes)
{
    uncopy_argument_t argument;
    memset(&argument, 0, sizeof(argument));
    argument.data = data;
    argument.storage_bytes = -1; /* we vouch for the bytes */
    argument.dtype = UNCOPY_DTYPE_F32;
    argument.rank = rank;
    argument.sizes = sizes;
    return argument;
}

/* Where the tensors of one call lie, and whether it needs a plan that is not there yet. */
typedef struct placement {
    float *buffer, *w1, *w2;
    int is_planned;
} placement_t;

/* Prints the plan and what a run of it moves; 1 if that is anything. */
static int show_plan(uncopy_context_t *context, const uncopy_plan_t *plan)
{
    char *text = NULL;
    uncopy_plan_counts_t counts;
    if (failed(uncopy_plan_print(plan, &text), "print")) {
        return 1;
    }
    uncopy_plan_count(plan, &counts);
    (void)printf("%scopies removed: %d, bytes moved: %d, bytes copied: %d\n\n", text,
                 (int)counts.removed, (int)counts.bytes_moved, (int)counts.bytes_copied);
    uncopy_text_release(context, text);
    return counts.copies != 0 || counts.moves != 0;
}

/* Runs the function on these tensors; *out_right says whether o and the buffer are as they must. */
static int run_and_compare(uncopy_function_t *function, const placement_t *place,
                           uncopy_run_t *out_run, int *out_right)
{
    static const int64_t flat[] = {WEIGHTS};
    static const int64_t x_sizes[] = {ROWS, INNER};
    static const int64_t w1_sizes[] = {INNER, OUTER};
    static const int64_t w2_sizes[] = {OUTER, INNER};
    float x[ROWS * INNER], weights[WEIGHTS], h[ROWS * OUTER], expected[ROWS * INNER];
    for (int i = 0; i < WEIGHTS; i++) {
        place->buffer[i] = (float)(i % 3);
        weights[i] = (float)(i % 5);
    }
    for (int i = 0; i < ROWS * INNER; i++) {
        x[i] = (float)(i + 1);
    }
    multiply(x, place->w1, h, ROWS, INNER, OUTER); /* w1 as it is before */
    uncopy_argument_t arguments[5];
    arguments[0] = tensor(place->buffer, 1, flat);
    arguments[1] = tensor(weights, 1, flat);
    arguments[2] = tensor(x, 2, x_sizes);
    arguments[3] = tensor(place->w1, 2, w1_sizes);
    arguments[4] = tensor(place->w2, 2, w2_sizes);
    uncopy_argument_t output;
    if (failed(uncopy_function_run(function, arguments, 5, NULL, &output, out_run), "run")) {
        return 1;
    }
    multiply(h, place->w2, expected, ROWS, OUTER, INNER); /* w2 as it is now */
    const float *o = (const float *)output.data;
    *out_right = memcmp(o, expected, sizeof(expected)) == 0;
    for (int i = 0; i < WEIGHTS; i++) {
        *out_right = *out_right && place->buffer[i] == 0.5F * weights[i];
    }
    (void)printf("o = %g %g %g %g ...: ", (double)o[0], (double)o[1], (double)o[2], (double)o[3]);
    uncopy_function_release_outputs(function, &output);
    return 0;
}

/* Calls the function once, prints the outcome and a plan that is new, and checks both. */
static int call(uncopy_context_t *context, uncopy_function_t *function, const placement_t *place)
{
    uncopy_run_t run;
    int is_right = 0;
    if (run_and_compare(function, place, &run, &is_right)) {
        return 1;
    }
    (void)printf("%s, %s\n", is_right ? "right" : "WRONG",
                 run.has_planned ? "planned" : "by a plan made before");
    int has_failed = !is_right || run.has_planned != place->is_planned;
    if (run.has_planned) {
        has_failed = show_plan(context, run.plan) || has_failed;
    }
    uncopy_plan_release(run.plan);
    return has_failed;
}

/* The four calls; then the counts of all. */
static int call_all(uncopy_context_t *context, uncopy_program_t *program)
{
    enum { HALF = WEIGHTS / 2, NUM_CALLS = 4 };
    static float buffer[WEIGHTS], elsewhere[WEIGHTS];
    const placement_t places[NUM_CALLS] = {
        {buffer, buffer, buffer + HALF, 1},
        {buffer, elsewhere, elsewhere + HALF, 1},
        {buffer, buffer + HALF, buffer, 0},
        {buffer, buffer, buffer + HALF, 0},
    };
    uncopy_function_t *function = NULL;
    for (int i = 0; i < WEIGHTS; i++) {
        elsewhere[i] = (float)(i % 7);
    }
    int has_failed = failed(uncopy_function_create(program, NULL, NULL, &function), "function");
    for (int i = 0; i < NUM_CALLS && !has_failed; i++) {
        has_failed = call(context, function, &places[i]);
    }
    if (!has_failed) {
        uncopy_counts_t counts;
        uncopy_function_counts(function, &counts);
        (void)printf("%d calls, %d plans, %d of them replans, %d copies, %d moves\n\n",
                     (int)counts.calls, (int)counts.plans, (int)counts.replans, (int)counts.copies,
                     (int)counts.moves);
        has_failed = counts.calls != NUM_CALLS || counts.plans != 2 || counts.copies != 0;
    }
    uncopy_function_release(function);
    return has_failed;
}

int main(void)
{
    uncopy_context_t *context = NULL;
    uncopy_program_t *built = NULL, *parsed = NULL;
    int has_failed =
        failed(uncopy_context_create(NULL, NULL, &context), "context") || build(context, &built) ||
        failed(uncopy_program_parse(context, text_form, sizeof(text_form) - 1, &parsed), "parse") ||
        call_all(context, built) || call_all(context, parsed);
    uncopy_program_release(parsed);
    uncopy_program_release(built);
    uncopy_context_release(context);
    return has_failed;
}
