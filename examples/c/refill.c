/* A flat buffer that holds two weights, refilled inside the program, without Python.
 *
 * The program copies new weights into the buffer and multiplies with two views of it. The views are
 * arguments of their own: the program does not say that they lie in the buffer, the addresses of
 * each call do. The same function is then called with weights that lie elsewhere, and in the buffer
 * the other way round: each call checks what the plan relied on, and plans anew only if that has
 * changed. Prints the plan of each call; exits with 0 when all values are right. */
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

/* The program by calls. The same as text: text_form below. */
static int build(uncopy_context_t *context, uncopy_program_t **out_program)
{
    static const uncopy_dim_t flat[] = {WEIGHTS};
    static const uncopy_dim_t x_sizes[] = {ROWS, INNER};
    static const uncopy_dim_t w1_sizes[] = {INNER, OUTER};
    static const uncopy_dim_t w2_sizes[] = {OUTER, INNER};
    static const uncopy_dim_t h_sizes[] = {ROWS, OUTER};
    uncopy_program_t *program = NULL;
    uncopy_view_t buffer, fresh, x, w1, w2, h, o;
    if (failed(uncopy_program_create(context, "refill", &program), "create")) {
        return 1;
    }
    *out_program = program;
    if (failed(add_tensor(program, "buffer", 1, 1, flat, &buffer), "buffer") ||
        failed(add_tensor(program, "weights", 1, 1, flat, &fresh), "weights") ||
        failed(add_tensor(program, "x", 1, 2, x_sizes, &x), "x") ||
        failed(add_tensor(program, "w1", 1, 2, w1_sizes, &w1), "w1") ||
        failed(add_tensor(program, "w2", 1, 2, w2_sizes, &w2), "w2") ||
        failed(add_tensor(program, "h", 0, 2, h_sizes, &h), "h") ||
        failed(add_tensor(program, "o", 0, 2, x_sizes, &o), "o")) {
        return 1;
    }
    uncopy_operand_t refill[1], first[2], second[2];
    refill[0] = read_view(fresh);
    first[0] = read_view(x);
    first[1] = read_view(w1);
    second[0] = read_view(h);
    second[1] = read_view(w2);
    return failed(add(program, "copy", refill, 1, buffer, __LINE__), "copy") ||
           failed(add(program, "matmul", first, 2, h, __LINE__), "matmul") ||
           failed(add(program, "matmul", second, 2, o, __LINE__), "matmul") ||
           failed(uncopy_program_add_output(program, o), "output") ||
           failed(uncopy_program_verify(program), "verify");
}

static const char text_form[] = "program refill\n"
                                "argument buffer f32[48]\n"
                                "argument weights f32[48]\n"
                                "argument x f32[2,4]\n"
                                "argument w1 f32[4,6]\n"
                                "argument w2 f32[6,4]\n"
                                "scratch h f32[2,6]\n"
                                "fresh o f32[2,4]\n"
                                "copy weights -> buffer\n"
                                "matmul x, w1 -> h\n"
                                "matmul h, w2 -> o\n"
                                "output o\n";

/* (x @ w1) @ w2 the plain way. */
static void expect(const float *x, const float *w1, const float *w2, float *o)
{
    float h[ROWS * OUTER];
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < OUTER; j++) {
            h[i * OUTER + j] = 0;
            for (int k = 0; k < INNER; k++) {
                h[i * OUTER + j] += x[i * INNER + k] * w1[k * OUTER + j];
            }
        }
        for (int j = 0; j < INNER; j++) {
            o[i * INNER + j] = 0;
            for (int k = 0; k < OUTER; k++) {
                o[i * INNER + j] += h[i * OUTER + k] * w2[k * INNER + j];
            }
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

static int print_plan(uncopy_context_t *context, const uncopy_plan_t *plan)
{
    char *text = NULL;
    if (failed(uncopy_plan_print(plan, &text), "print")) {
        return 1;
    }
    (void)fputs(text, stdout);
    uncopy_text_release(context, text);
    return 0;
}

/* Calls the function with weights at w1 and w2, prints its plan, compares with the plain way. */
static int call(uncopy_context_t *context, uncopy_function_t *function, float *buffer, float *w1,
                float *w2)
{
    static const int64_t flat[] = {WEIGHTS};
    static const int64_t x_sizes[] = {ROWS, INNER};
    static const int64_t w1_sizes[] = {INNER, OUTER};
    static const int64_t w2_sizes[] = {OUTER, INNER};
    float x[ROWS * INNER], weights[WEIGHTS], right[ROWS * INNER];
    for (int i = 0; i < WEIGHTS; i++) {
        weights[i] = (float)(i % 5);
    }
    for (int i = 0; i < ROWS * INNER; i++) {
        x[i] = (float)(i + 1);
    }
    uncopy_argument_t arguments[5];
    arguments[0] = tensor(buffer, 1, flat);
    arguments[1] = tensor(weights, 1, flat);
    arguments[2] = tensor(x, 2, x_sizes);
    arguments[3] = tensor(w1, 2, w1_sizes);
    arguments[4] = tensor(w2, 2, w2_sizes);
    uncopy_argument_t output;
    uncopy_run_t run;
    if (failed(uncopy_function_run(function, arguments, 5, NULL, &output, &run), "run")) {
        return 1;
    }
    expect(x, w1, w2, right); /* w1 and w2 as the refill left them */
    int is_right = memcmp(output.data, right, sizeof(right)) == 0 &&
                   memcmp(buffer, weights, sizeof(weights)) == 0;
    (void)printf("%s, values %s\n", run.has_planned ? "planned" : "the plan holds",
                 is_right ? "right" : "WRONG");
    int has_failed = print_plan(context, run.plan) || !is_right;
    uncopy_plan_release(run.plan);
    uncopy_function_release_outputs(function, &output);
    return has_failed;
}

int main(void)
{
    static float buffer[WEIGHTS], elsewhere[WEIGHTS];
    uncopy_context_t *context = NULL;
    uncopy_program_t *program = NULL, *parsed = NULL;
    uncopy_function_t *function = NULL;
    for (int i = 0; i < WEIGHTS; i++) {
        elsewhere[i] = (float)(i % 3);
    }
    int has_failed =
        failed(uncopy_context_create(NULL, NULL, &context), "context") ||
        build(context, &program) ||
        failed(uncopy_program_parse(context, text_form, sizeof(text_form) - 1, &parsed), "parse") ||
        failed(uncopy_function_create(program, NULL, NULL, &function), "function") ||
        call(context, function, buffer, buffer, buffer + INNER * OUTER) ||
        call(context, function, buffer, elsewhere, elsewhere + INNER * OUTER) ||
        call(context, function, buffer, buffer + INNER * OUTER, buffer);
    uncopy_function_release(function);
    uncopy_program_release(parsed);
    uncopy_program_release(program);
    uncopy_context_release(context);
    return has_failed;
}
