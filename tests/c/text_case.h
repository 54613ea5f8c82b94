/* A text test: a file with one program and sections of expectations (docs/text-language.md), and
 * how each section is checked. */
#ifndef TEXT_CASE_H
#define TEXT_CASE_H

#include <stdbool.h>
#include <stddef.h>

#include "fake_host.h"
#include "uncopy/uncopy.h"

/* "--- title" and the lines up to the next section. All text is NUL-terminated and owned. */
typedef struct text_section {
    char *title; /* without the dashes */
    char *body;
    int line;
} text_section_t;

typedef struct text_case {
    const char *path;
    char *program; /* the file up to its first section */
    text_section_t *sections;
    size_t num_sections;
    bool is_changed; /* by an update */
} text_case_t;

/* False with printed words where the file cannot be read. */
bool text_case_read(const char *path, text_case_t *out_case);
bool text_case_write(const text_case_t *test);
void text_case_release(text_case_t *test);
/* A copy to be freed. */
char *text_case_copy(const char *text);
/* Replaces *text by a copy of words; *is_changed is set where they differ. */
void text_case_replace(char **text, const char *words, bool *is_changed);

/* A newly allocated program text: lines of text that do not start with `assume`, then assumes. */
char *text_case_assume(const char *text, const char *assumes);

/* ---- text_values.c ---- */

/* A function with the host it runs on; NULL function: not made yet. */
typedef struct text_function {
    uncopy_function_t *function;
    fake_host_t host;
    uncopy_host_t entries;
} text_function_t;

typedef struct text_values {
    uncopy_context_t *context;
    text_function_t with_passes, without_passes;
} text_values_t;

/* Makes both functions of program anew. False with printed words. */
bool text_values_open(text_values_t *values, uncopy_context_t *context, const char *program,
                      const uncopy_options_t *options);
void text_values_close(text_values_t *values);
/* Runs both functions and the reference on the same memory, laid out as the assume lines of program
 * say, and compares. False with printed words on a difference. is_close: floats may differ a little
 * from the reference's. */
bool text_values_check(text_values_t *values, const char *program, bool is_close);
/* Runs the function with passes once; its status. */
uncopy_status_t text_values_run(text_values_t *values, const char *program);

#endif
