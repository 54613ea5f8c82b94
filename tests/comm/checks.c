/* Checks of tests with several ranks: see checks.h. */
#include "checks.h"

#include <stdatomic.h>

static atomic_int num_failed, num_checked;

bool checks_that(bool holds, const char *condition, const char *file, int line)
{
    atomic_fetch_add(&num_checked, 1);
    if (!holds) {
        atomic_fetch_add(&num_failed, 1);
        printf("%s:%d: failed: %s\n", file, line, condition);
    }
    return holds;
}

bool checks_status(uncopy_status_t actual, uncopy_status_t expected, const char *words,
                   const char *file, int line)
{
    bool holds = checks_that(actual == expected, words, file, line);
    if (!holds) {
        printf("    is %s (%s), expected %s\n", uncopy_status_name(actual),
               actual != UNCOPY_OK ? uncopy_last_message() : "", uncopy_status_name(expected));
    }
    return holds;
}

bool checks_equal_i64(int64_t actual, int64_t expected, const char *words, const char *file,
                      int line)
{
    bool holds = checks_that(actual == expected, words, file, line);
    if (!holds) {
        printf("    is %" PRId64 ", expected %" PRId64 "\n", actual, expected);
    }
    return holds;
}

bool checks_holds(const char *text, const char *part, const char *file, int line)
{
    bool holds = checks_that(strstr(text, part) != NULL, part, file, line);
    if (!holds) {
        printf("    in: %s\n", text);
    }
    return holds;
}

void checks_reset(void)
{
    atomic_store(&num_failed, 0);
    atomic_store(&num_checked, 0);
}

int checks_failed(void)
{
    return atomic_load(&num_failed);
}

int checks_finish(const char *program)
{
    int failed = atomic_load(&num_failed);
    printf("%s: %d passed, %d failed\n", program, atomic_load(&num_checked) - failed, failed);
    return failed == 0 ? 0 : 1;
}
