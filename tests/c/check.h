/* The checks of a C test: a failed one is printed with its line and counted, and the program goes
 * on.
 *
 * A test program includes this once, calls checks, and returns check_finish("its name"). */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int check_failures, check_count;

#define CHECK(cond) check_that((cond), #cond, __FILE__, __LINE__)
#define CHECK_EQUAL_I64(actual, expected) \
    check_equal_i64((actual), (expected), #actual, __FILE__, __LINE__)
/* Either side may be NULL. */
#define CHECK_EQUAL_TEXT(actual, expected) \
    check_equal_text((actual), (expected), #actual, __FILE__, __LINE__)

static inline bool check_that(bool holds, const char *condition, const char *file, int line)
{
    check_count++;
    if (!holds) {
        check_failures++;
        printf("%s:%d: failed: %s\n", file, line, condition);
    }
    return holds;
}

static inline bool check_equal_i64(int64_t actual, int64_t expected, const char *words,
                                   const char *file, int line)
{
    bool holds = check_that(actual == expected, words, file, line);
    if (!holds) {
        printf("    is %" PRId64 ", expected %" PRId64 "\n", actual, expected);
    }
    return holds;
}

static inline bool check_equal_text(const char *actual, const char *expected, const char *words,
                                    const char *file, int line)
{
    bool are_texts = actual != NULL && expected != NULL;
    bool holds = check_that(are_texts ? strcmp(actual, expected) == 0 : actual == expected, words,
                            file, line);
    if (!holds) {
        printf("--- is\n%s\n--- expected\n%s\n---\n", actual != NULL ? actual : "(null)",
               expected != NULL ? expected : "(null)");
    }
    return holds;
}

/* Prints the program's closing line and returns its exit code. */
static inline int check_finish(const char *program)
{
    printf("%s: %d passed, %d failed\n", program, check_count - check_failures, check_failures);
    return check_failures == 0 ? 0 : 1;
}

#endif
