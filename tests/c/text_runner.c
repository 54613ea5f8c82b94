/* Runs text tests: text_runner [--update] FILE... (docs/text-language.md gives the format). With
 * --update the expectations that can be are rewritten with what was found. Exit code 1 if a section
 * fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_case.h"

typedef struct runner {
    uncopy_context_t *context;
    text_case_t *test;
    bool is_update;
    char *program; /* with the assume lines of the last replan */
    uncopy_options_t options;
    uncopy_plan_t *plan; /* of program and options; NULL: not made yet */
    text_values_t values;
    bool has_functions;
} runner_t;

static bool fail(const runner_t *runner, const text_section_t *section, const char *words)
{
    printf("%s:%d: --- %s: %s\n", runner->test->path, section->line, section->title, words);
    return false;
}

/* ---- the plan at hand ---- */

static void drop_plan(runner_t *runner)
{
    uncopy_plan_release(runner->plan);
    runner->plan = NULL;
}

static uncopy_status_t make_plan(runner_t *runner)
{
    uncopy_program_t *program = NULL;
    if (runner->plan != NULL) {
        return UNCOPY_OK;
    }
    uncopy_status_t status =
        uncopy_program_parse(runner->context, runner->program, strlen(runner->program), &program);
    if (status == UNCOPY_OK) {
        status = uncopy_plan_create(program, &runner->options, NULL, 0, &runner->plan);
    }
    uncopy_program_release(program);
    return status;
}

/* ---- sections with a body that is compared ---- */

static bool expect_text(runner_t *runner, text_section_t *section, const char *found)
{
    bool is_changed = false;
    char *body = text_case_copy(section->body);
    text_case_replace(&body, found, &is_changed);
    if (is_changed && runner->is_update) {
        text_case_replace(&section->body, found, &runner->test->is_changed);
    } else if (is_changed) {
        (void)fail(runner, section, "differs; found");
        printf("%s\n", body);
    }
    free(body);
    return !is_changed || runner->is_update;
}

static bool check_text(runner_t *runner, text_section_t *section, uncopy_status_t status,
                       char *text)
{
    if (status != UNCOPY_OK) {
        return fail(runner, section, uncopy_last_message());
    }
    bool is_fine = expect_text(runner, section, text);
    uncopy_text_release(runner->context, text);
    return is_fine;
}

static bool check_print(runner_t *runner, text_section_t *section)
{
    uncopy_program_t *program = NULL;
    char *text = NULL;
    uncopy_status_t status =
        uncopy_program_parse(runner->context, runner->program, strlen(runner->program), &program);
    if (status == UNCOPY_OK) {
        status = uncopy_program_print(program, &text);
    }
    uncopy_program_release(program);
    return check_text(runner, section, status, text);
}

static bool check_plan(runner_t *runner, text_section_t *section)
{
    char *text = NULL;
    uncopy_status_t status = make_plan(runner);
    if (status == UNCOPY_OK) {
        status = uncopy_plan_print(runner->plan, &text);
    }
    return check_text(runner, section, status, text);
}

static bool check_explain(runner_t *runner, text_section_t *section)
{
    char *text = NULL;
    uncopy_status_t status = make_plan(runner);
    if (status == UNCOPY_OK) {
        status = uncopy_plan_explain(runner->plan, &text);
    }
    return check_text(runner, section, status, text);
}

/* ---- sections of one line ---- */

static bool expect_title(runner_t *runner, text_section_t *section, const char *found)
{
    if (strcmp(section->title, found) == 0) {
        return true;
    }
    if (runner->is_update) {
        text_case_replace(&section->title, found, &runner->test->is_changed);
        return true;
    }
    (void)fail(runner, section, "differs; found");
    printf("--- %s\n", found);
    return false;
}

static bool check_copies(runner_t *runner, text_section_t *section)
{
    char found[1024];
    if (make_plan(runner) != UNCOPY_OK) {
        return fail(runner, section, uncopy_last_message());
    }
    size_t count = uncopy_plan_num_copies(runner->plan);
    int at = snprintf(found, sizeof(found), "copies %zu", count);
    for (size_t i = 0; i < count && at > 0 && (size_t)at < sizeof(found); i++) {
        uncopy_copy_t copy;
        if (uncopy_plan_copy(runner->plan, i, &copy) != UNCOPY_OK) {
            return fail(runner, section, uncopy_last_message());
        }
        at += snprintf(found + at, sizeof(found) - (size_t)at, " %s", copy.reason);
    }
    return expect_title(runner, section, found);
}

typedef struct count_name {
    const char *name;
    size_t offset;
} count_name_t;

static const count_name_t count_names[] = {
#define COUNT(name) {#name, offsetof(uncopy_plan_counts_t, name)}
    COUNT(instructions), COUNT(moves),        COUNT(bytes_moved),
    COUNT(copies),       COUNT(bytes_copied), COUNT(externs),
    COUNT(collectives),  COUNT(arena_bytes),  COUNT(arena_lower_bound_bytes),
    COUNT(removed),      COUNT(made_bytes),
#undef COUNT
};

/* "counts moves=1 externs=0": the names that are there are compared. */
static bool check_counts(runner_t *runner, text_section_t *section)
{
    char found[1024] = "counts";
    uncopy_plan_counts_t counts;
    if (make_plan(runner) != UNCOPY_OK) {
        return fail(runner, section, uncopy_last_message());
    }
    uncopy_plan_count(runner->plan, &counts);
    for (const char *at = strchr(section->title, ' '); at != NULL; at = strchr(at + 1, ' ')) {
        size_t length = strcspn(at + 1, "= ");
        const int64_t *value = NULL;
        for (size_t i = 0; i < sizeof(count_names) / sizeof(count_names[0]); i++) {
            if (strlen(count_names[i].name) == length &&
                strncmp(count_names[i].name, at + 1, length) == 0) {
                value =
                    (const int64_t *)(const void *)((const char *)&counts + count_names[i].offset);
            }
        }
        if (value == NULL) {
            return fail(runner, section, "no such count");
        }
        size_t end = strlen(found);
        (void)snprintf(found + end, sizeof(found) - end, " %.*s=%lld", (int)length, at + 1,
                       (long long)*value);
    }
    return expect_title(runner, section, found);
}

/* ---- runs ---- */

static bool open_functions(runner_t *runner)
{
    if (!runner->has_functions) {
        runner->has_functions =
            text_values_open(&runner->values, runner->context, runner->program, &runner->options);
    }
    return runner->has_functions;
}

static bool check_values(runner_t *runner, text_section_t *section)
{
    bool is_close = strstr(section->title, " close") != NULL;
    if (!open_functions(runner) || !text_values_check(&runner->values, runner->program, is_close)) {
        return fail(runner, section, "a run differs");
    }
    return true;
}

/* "plans N": plans that the function with passes has made by now. */
static bool check_plans(runner_t *runner, text_section_t *section)
{
    char found[64];
    size_t count =
        runner->has_functions ? uncopy_function_num_plans(runner->values.with_passes.function) : 0;
    (void)snprintf(found, sizeof(found), "plans %zu", count);
    return expect_title(runner, section, found);
}

/* The status that a title names, as "STRICT" or "PARSE"; UNCOPY_OK for none. */
static uncopy_status_t status_named(const char *name, size_t length)
{
    static const struct {
        const char *name;
        uncopy_status_t status;
    } statuses[] = {
#define STATUS(name, value, words, advice) {#name, UNCOPY_##name},
#include "uncopy/status.def"
#undef STATUS
    };
    for (size_t i = 1; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        const char *word = statuses[i].name + strlen("ERROR_");
        if (strlen(word) == length && strncmp(word, name, length) == 0) {
            return statuses[i].status;
        }
    }
    return UNCOPY_OK;
}

/* "error CODE words": parsing, planning or a run fails with that code, the message holds the
 * words. */
static bool check_error(runner_t *runner, text_section_t *section)
{
    const char *name = section->title + strlen("error");
    name += strspn(name, " ");
    size_t length = strcspn(name, " ");
    const char *words = name + length + strspn(name + length, " ");
    uncopy_status_t expected = status_named(name, length);
    uncopy_status_t status = make_plan(runner);
    if (status == UNCOPY_OK && open_functions(runner)) {
        status = text_values_run(&runner->values, runner->program);
    }
    if (status == UNCOPY_OK) {
        return fail(runner, section, "nothing fails");
    }
    if (status != expected || strstr(uncopy_last_message(), words) == NULL) {
        (void)fail(runner, section, "another failure");
        printf("    %s: %s\n", uncopy_status_name(status), uncopy_last_message());
        return false;
    }
    return true;
}

/* ---- sections that set the scene ---- */

static void close_functions(runner_t *runner)
{
    if (runner->has_functions) {
        text_values_close(&runner->values);
    }
    runner->has_functions = false;
    runner->values = (text_values_t){0};
}

static bool replan(runner_t *runner, text_section_t *section)
{
    char *program = text_case_assume(runner->program, section->body);
    free(runner->program);
    runner->program = program;
    drop_plan(runner);
    return true;
}

typedef struct option_word {
    const char *word;
    void (*set)(uncopy_options_t *options);
} option_word_t;

static void set_bfs(uncopy_options_t *options)
{
    options->order = UNCOPY_ORDER_BFS;
}

static void set_dfs(uncopy_options_t *options)
{
    options->order = UNCOPY_ORDER_DFS;
}

static void set_rdfs(uncopy_options_t *options)
{
    options->order = UNCOPY_ORDER_RDFS;
}

static void set_stable_rdfs(uncopy_options_t *options)
{
    options->order = UNCOPY_ORDER_STABLE_RDFS;
}

static void set_extern_kernels(uncopy_options_t *options)
{
    options->kernels = UNCOPY_KERNELS_EXTERN;
}

static void set_strict_copies(uncopy_options_t *options)
{
    options->strict |= UNCOPY_STRICT_COPIES;
}

static void set_strict_externs(uncopy_options_t *options)
{
    options->strict |= UNCOPY_STRICT_EXTERNS;
}

static void set_strict_replans(uncopy_options_t *options)
{
    options->strict |= UNCOPY_STRICT_REPLANS;
}

static void set_overlap(uncopy_options_t *options)
{
    options->has_overlap = 1;
}

static void set_elide_off(uncopy_options_t *options)
{
    options->passes_off |= UNCOPY_PASS_ELIDE;
}

static void set_normalise_off(uncopy_options_t *options)
{
    options->passes_off |= UNCOPY_PASS_NORMALISE;
}

static void set_place_off(uncopy_options_t *options)
{
    options->passes_off |= UNCOPY_PASS_PLACE;
}

static const option_word_t option_words[] = {
    {"order=BFS", set_bfs},
    {"order=DFS", set_dfs},
    {"order=RDFS", set_rdfs},
    {"order=StableRDFS", set_stable_rdfs},
    {"kernels=extern", set_extern_kernels},
    {"strict=copies", set_strict_copies},
    {"strict=externs", set_strict_externs},
    {"strict=replans", set_strict_replans},
    {"overlap", set_overlap},
    {"elide=off", set_elide_off},
    {"normalise=off", set_normalise_off},
    {"place=off", set_place_off},
};

/* "options WORD...": from the defaults. */
static bool set_options(runner_t *runner, text_section_t *section)
{
    drop_plan(runner);
    close_functions(runner);
    runner->options = (uncopy_options_t){0};
    for (const char *at = strchr(section->title, ' '); at != NULL; at = strchr(at + 1, ' ')) {
        size_t length = strcspn(at + 1, " ");
        bool is_known = length == 0;
        for (size_t i = 0; i < sizeof(option_words) / sizeof(option_words[0]); i++) {
            if (strlen(option_words[i].word) == length &&
                strncmp(option_words[i].word, at + 1, length) == 0) {
                option_words[i].set(&runner->options);
                is_known = true;
            }
        }
        if (!is_known) {
            return fail(runner, section, "no such option");
        }
    }
    return true;
}

/* ---- files ---- */

typedef struct section_kind {
    const char *word;
    bool (*check)(runner_t *runner, text_section_t *section);
} section_kind_t;

static const section_kind_t section_kinds[] = {
    {"print", check_print},   {"plan", check_plan},     {"explain", check_explain},
    {"copies", check_copies}, {"counts", check_counts}, {"values", check_values},
    {"plans", check_plans},   {"error", check_error},   {"replan", replan},
    {"options", set_options},
};

static bool check_section(runner_t *runner, text_section_t *section)
{
    size_t length = strcspn(section->title, " ");
    for (size_t i = 0; i < sizeof(section_kinds) / sizeof(section_kinds[0]); i++) {
        if (strlen(section_kinds[i].word) == length &&
            strncmp(section_kinds[i].word, section->title, length) == 0) {
            return section_kinds[i].check(runner, section);
        }
    }
    return fail(runner, section, "no such section");
}

/* Whether every section holds. */
static bool run_file(uncopy_context_t *context, const char *path, bool is_update)
{
    text_case_t test;
    if (!text_case_read(path, &test)) {
        return false;
    }
    runner_t runner = {.context = context, .test = &test, .is_update = is_update};
    runner.program = text_case_copy(test.program);
    bool is_fine = test.num_sections > 0;
    if (!is_fine) {
        printf("%s: expects nothing\n", path);
    }
    for (size_t i = 0; i < test.num_sections; i++) {
        is_fine = check_section(&runner, &test.sections[i]) && is_fine;
    }
    is_fine = (!test.is_changed || text_case_write(&test)) && is_fine;
    drop_plan(&runner);
    close_functions(&runner);
    free(runner.program);
    text_case_release(&test);
    return is_fine;
}

int main(int argc, char **argv)
{
    uncopy_context_t *context = NULL;
    bool is_update = argc > 1 && strcmp(argv[1], "--update") == 0;
    int num_files = 0;
    int num_failed = 0;
    if (uncopy_context_create(NULL, NULL, &context) != UNCOPY_OK) {
        printf("%s\n", uncopy_last_message());
        return 1;
    }
    for (int i = is_update ? 2 : 1; i < argc; i++) {
        num_files++;
        num_failed += run_file(context, argv[i], is_update) ? 0 : 1;
    }
    uncopy_context_release(context);
    printf("text: %d files passed, %d failed\n", num_files - num_failed, num_failed);
    return num_failed == 0 && num_files > 0 ? 0 : 1;
}
