/* Planning time: the refill program, and 1,000 operations of which 500 are copies to remove.
 *
 *     cc -O2 bench/plan.c $(pkg-config --cflags --libs uncopy) && ./a.out
 *
 * Each plan is made for arguments whose aliasing the program does not know. Prints the mean time of
 * a plan, and of a warm run of the first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "uncopy/uncopy.h"

static const char refill[] = "program refill\n"
                             "argument x bf16[2,8]\n"
                             "argument buffer bf16[256]\n"
                             "argument weights bf16[256]\n"
                             "argument w1 bf16[8,16]\n"
                             "argument w2 bf16[16,8]\n"
                             "scratch h bf16[2,16]\n"
                             "fresh o bf16[2,8]\n"
                             "copy weights -> buffer\n"
                             "matmul x, w1 -> h\n"
                             "matmul h, w2 -> o\n"
                             "output o\n";

static double now_ns(void)
{
    struct timespec now;
    (void)timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void check(uncopy_status_t status)
{
    if (status != UNCOPY_OK) {
        (void)fprintf(stderr, "%s\n", uncopy_last_message());
        exit(1);
    }
}

static uncopy_argument_t tensor(void *data, uncopy_dtype_t dtype, int32_t rank,
                                const int64_t *sizes)
{
    uncopy_argument_t argument = {data, NULL, -1, dtype, rank, sizes, NULL};
    return argument;
}

/* Mean nanoseconds of a plan. */
static double time_plans(uncopy_program_t *program, const uncopy_argument_t *arguments,
                         size_t count, int repeats)
{
    double start = now_ns();
    for (int i = 0; i < repeats; i++) {
        uncopy_plan_t *plan = NULL;
        check(uncopy_plan_create(program, NULL, arguments, count, &plan));
        uncopy_plan_release(plan);
    }
    return (now_ns() - start) / repeats;
}

static void bench_refill(uncopy_context_t *context)
{
    static uint16_t x[16], buffer[256], weights[256];
    static const int64_t x_sizes[] = {2, 8}, flat[] = {256}, w1_sizes[] = {8, 16},
                         w2_sizes[] = {16, 8};
    enum { RUNS = 1000000, PLANS = 2000 };
    uncopy_argument_t arguments[] = {
        tensor(x, UNCOPY_DTYPE_BF16, 2, x_sizes), tensor(buffer, UNCOPY_DTYPE_BF16, 1, flat),
        tensor(weights, UNCOPY_DTYPE_BF16, 1, flat), tensor(buffer, UNCOPY_DTYPE_BF16, 2, w1_sizes),
        tensor(buffer + 128, UNCOPY_DTYPE_BF16, 2, w2_sizes)};
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    check(uncopy_program_parse(context, refill, sizeof(refill) - 1, &program));
    check(uncopy_function_create(program, NULL, NULL, &function));
    (void)printf("refill, 3 operations: %.2f us a plan\n",
                 time_plans(program, arguments, 5, PLANS) / 1e3);
    double start = now_ns();
    for (int i = 0; i < RUNS; i++) {
        uncopy_argument_t output;
        check(uncopy_function_run(function, arguments, 5, NULL, &output, NULL));
        uncopy_function_release_outputs(function, &output);
    }
    (void)printf("refill: %.0f ns a warm run\n", (now_ns() - start) / RUNS);
    uncopy_function_release(function);
    uncopy_program_release(program);
}

static void bench_chain(uncopy_context_t *context)
{
    enum { PAIRS = 500, LINE = 96 };
    static float a[64], b[64], w[64];
    static const int64_t flat[] = {64}, half[] = {32};
    char *text = calloc(2 * PAIRS + 8, LINE);
    char *at = text;
    at += sprintf(at, "program chain\nargument a f32[64]\nargument b f32[64]\nargument w "
                      "f32[64]\nargument w1 f32[32]\n");
    for (int i = 0; i < PAIRS; i++) {
        at += sprintf(at, "scratch t%d f32[64]\n", i);
    }
    for (int i = 0; i < PAIRS; i++) {
        at += sprintf(at, "add a, b -> t%d\ncopy t%d -> %s\n", i, i, i % 2 != 0 ? "w" : "a");
    }
    uncopy_argument_t arguments[] = {
        tensor(a, UNCOPY_DTYPE_F32, 1, flat), tensor(b, UNCOPY_DTYPE_F32, 1, flat),
        tensor(w, UNCOPY_DTYPE_F32, 1, flat), tensor(w, UNCOPY_DTYPE_F32, 1, half)};
    uncopy_program_t *program = NULL;
    check(uncopy_program_parse(context, text, strlen(text), &program));
    (void)printf("1,000 operations: %.2f ms a plan\n", time_plans(program, arguments, 4, 20) / 1e6);
    uncopy_program_release(program);
    free(text);
}

int main(void)
{
    uncopy_context_t *context = NULL;
    check(uncopy_context_create(NULL, NULL, &context));
    bench_refill(context);
    bench_chain(context);
    uncopy_context_release(context);
    return 0;
}
