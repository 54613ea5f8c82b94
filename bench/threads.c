/* What the thread pool gives: one program of pointwise operations on one thread and on two.
 *
 *     cc -O2 bench/threads.c $(pkg-config --cflags --libs uncopy) && ./a.out [PAUSE_US]
 *
 * For each size, blocks of runs alternate between one thread and two; PAUSE_US microseconds of
 * sleep lie between runs (0: none). Prints the median time of a run on one thread, that on two as a
 * ratio to it, and the same of the fastest tenth, which a busy machine disturbs less. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "uncopy/uncopy.h"

enum { OPERATIONS = 4, LINE = 128, BLOCK = 20, MOST_RUNS = 2000 };

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void check(uncopy_status_t status)
{
    if (status != UNCOPY_OK) {
        (void)fprintf(stderr, "%s\n", uncopy_last_message());
        exit(1);
    }
}

static void pause_us(long microseconds)
{
    if (microseconds > 0) {
        struct timespec time = {0, microseconds * 1000};
        (void)nanosleep(&time, NULL);
    }
}

static uncopy_function_t *make_function(uncopy_context_t *context, size_t elements, int threads)
{
    char text[LINE * (OPERATIONS + 4)];
    char *at = text;
    at += sprintf(at, "program chain\nargument a f32[%zu]\nargument b f32[%zu]\n", elements,
                  elements);
    for (int i = 0; i < OPERATIONS; i++) {
        at += sprintf(at, "%s\n", i % 2 == 0 ? "add a, b -> b" : "mul b, 0.5 -> b");
    }
    uncopy_options_t options = {.threads = threads};
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    check(uncopy_program_parse(context, text, strlen(text), &program));
    check(uncopy_function_create(program, &options, NULL, &function));
    uncopy_program_release(program);
    return function;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void bench_size(uncopy_context_t *context, size_t elements, long pause)
{
    static double times[2][MOST_RUNS];
    int64_t size = (int64_t)elements;
    float *data = calloc(2 * elements, sizeof(float));
    uncopy_argument_t arguments[2] = {
        {data, NULL, -1, UNCOPY_DTYPE_F32, 1, &size, NULL},
        {data + elements, NULL, -1, UNCOPY_DTYPE_F32, 1, &size, NULL}};
    uncopy_function_t *functions[2] = {make_function(context, elements, 1),
                                       make_function(context, elements, 2)};
    int runs = elements > 1000000 ? 100 : MOST_RUNS;
    for (int i = 0; i < 2 * runs; i++) {
        int f = i / BLOCK % 2, number = i / (2 * BLOCK) * BLOCK + i % BLOCK;
        pause_us(pause);
        double start = now_ns();
        check(uncopy_function_run(functions[f], arguments, 2, NULL, NULL, NULL));
        times[f][number] = now_ns() - start;
    }
    for (int f = 0; f < 2; f++) {
        qsort(times[f], (size_t)runs, sizeof(double), compare);
        uncopy_function_release(functions[f]);
    }
    (void)printf("%9zu elements: %10.2f us; two threads %.2f of it, fastest tenth %.2f\n", elements,
                 times[0][runs / 2] / 1e3, times[1][runs / 2] / times[0][runs / 2],
                 times[1][runs / 10] / times[0][runs / 10]);
    free(data);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1 << 10, 1 << 12, 1 << 13, 1 << 14,
                                   1 << 16, 1 << 18, 1 << 20, 1 << 23};
    long pause = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    uncopy_context_t *context = NULL;
    check(uncopy_context_create(NULL, NULL, &context));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bench_size(context, sizes[i], pause);
    }
    uncopy_context_release(context);
    return 0;
}
