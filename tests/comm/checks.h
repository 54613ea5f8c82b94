/* Checks of tests with several ranks: as tests/c/check.h, but counted by atomics (ranks may be
 * threads) and by process. */
#ifndef CHECKS_H
#define CHECKS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "uncopy/status.h"

#define CHECK(cond) checks_that((cond), #cond, __FILE__, __LINE__)
#define CHECK_OK(expr) checks_status((expr), UNCOPY_OK, #expr, __FILE__, __LINE__)
#define CHECK_STATUS(expr, status) checks_status((expr), (status), #expr, __FILE__, __LINE__)
#define CHECK_EQUAL_I64(actual, expected) \
    checks_equal_i64((actual), (expected), #actual, __FILE__, __LINE__)
/* text holds part. */
#define CHECK_HOLDS(text, part) checks_holds((text), (part), __FILE__, __LINE__)

bool checks_that(bool holds, const char *condition, const char *file, int line);
bool checks_status(uncopy_status_t actual, uncopy_status_t expected, const char *words,
                   const char *file, int line);
bool checks_equal_i64(int64_t actual, int64_t expected, const char *words, const char *file,
                      int line);
bool checks_holds(const char *text, const char *part, const char *file, int line);
void checks_reset(void);
int checks_failed(void);
/* Prints the program's closing line and returns its exit code. */
int checks_finish(const char *program);

#endif
