/* Random programs: with all passes, without passes and by the reference, on equal memory, they
 * leave equal bytes, outputs and sharing of outputs; also when the same function runs again on
 * other addresses, where plans are reused or made anew.
 *
 * Usage: test_random_programs. UNCOPY_TEST_SCALE=n multiplies the number of programs,
 * UNCOPY_TEST_SEED=n is the first one's seed. A program that differs is shrunk to the lines that it
 * takes, and printed with its scenes. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "random_program.h"
#include "text_case.h"

enum { NUM_PROGRAMS = 1600, MAX_REPORTS = 5, MAX_REASONS = 32 };

/* ---- what was found ---- */

typedef struct tally {
    const char *reasons[MAX_REASONS]; /* owned by the library */
    int64_t counts[MAX_REASONS];
    size_t num_reasons;
    int64_t programs, undefined, scenes, plans, removed, stayed;
} tally_t;

static void count_reason(tally_t *tally, const char *reason)
{
    size_t i = 0;
    while (i < tally->num_reasons && strcmp(tally->reasons[i], reason) != 0) {
        i++;
    }
    if (i == MAX_REASONS) {
        return;
    }
    if (i == tally->num_reasons) {
        tally->reasons[tally->num_reasons++] = reason;
    }
    tally->counts[i]++;
}

static void count_plans(tally_t *tally, uncopy_function_t *function)
{
    for (size_t i = 0; i < uncopy_function_num_plans(function); i++) {
        uncopy_plan_t *plan = uncopy_function_plan_at(function, i);
        uncopy_plan_counts_t counts;
        uncopy_plan_count(plan, &counts);
        tally->plans++;
        tally->removed += counts.removed;
        tally->stayed += counts.copies;
        for (size_t c = 0; c < uncopy_plan_num_copies(plan); c++) {
            uncopy_copy_t copy;
            if (uncopy_plan_copy(plan, c, &copy) == UNCOPY_OK) {
                count_reason(tally, copy.reason);
            }
        }
        uncopy_plan_release(plan);
    }
}

static void print_tally(const tally_t *tally)
{
    printf("%" PRId64 " programs (%" PRId64 " not defined), %" PRId64 " scenes, %" PRId64
           " plans, %" PRId64 " copies removed, %" PRId64 " stay\n",
           tally->programs, tally->undefined, tally->scenes, tally->plans, tally->removed,
           tally->stayed);
    for (size_t i = 0; i < tally->num_reasons; i++) {
        printf("  %-22s %" PRId64 "\n", tally->reasons[i], tally->counts[i]);
    }
}

/* ---- silence: checks print what differs, which is wanted of the last run alone ---- */

static int silence_begin(void)
{
    (void)fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    int nowhere = open("/dev/null", O_WRONLY);
    if (kept < 0 || nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) {
        abort();
    }
    (void)close(nowhere);
    return kept;
}

static void silence_end(int kept)
{
    (void)fflush(stdout);
    if (dup2(kept, STDOUT_FILENO) < 0) {
        abort();
    }
    (void)close(kept);
}

/* ---- one program ---- */

typedef enum verdict { VERDICT_UNDEFINED, VERDICT_EQUAL, VERDICT_DIFFERS } verdict_t;

static bool is_defined(const char *text)
{
    scene_t scene;
    bool has_scene = scene_init(&scene, text);
    bool is_fine = has_scene && random_program_is_defined(&scene);
    if (has_scene) {
        scene_release(&scene);
    }
    return is_fine;
}

/* Runs the scenes that are defined, one after the other, by one pair of functions. */
static verdict_t run_program(uncopy_context_t *context, const random_program_t *program,
                             const uncopy_options_t *options, tally_t *tally)
{
    char text[RANDOM_TEXT_BYTES];
    text_values_t values = {0};
    verdict_t verdict = VERDICT_UNDEFINED;
    for (size_t s = 0; s < program->num_scenes && verdict != VERDICT_DIFFERS; s++) {
        random_program_text(program, s, text);
        if (!is_defined(text)) {
            continue;
        }
        if (verdict == VERDICT_UNDEFINED && !text_values_open(&values, context, text, options)) {
            verdict = VERDICT_DIFFERS;
            break;
        }
        verdict = text_values_check(&values, text, false) ? VERDICT_EQUAL : VERDICT_DIFFERS;
        tally->scenes++;
    }
    if (verdict == VERDICT_EQUAL) {
        count_plans(tally, values.with_passes.function);
    }
    text_values_close(&values);
    return verdict;
}

/* ---- shrinking ---- */

static void drop_line(random_program_t *program, size_t line)
{
    program->num_lines--;
    memmove(program->lines[line], program->lines[line + 1],
            (program->num_lines - line) * RANDOM_LINE_BYTES);
}

static void drop_scene(random_program_t *program, size_t scene)
{
    program->num_scenes--;
    memmove(program->scenes[scene], program->scenes[scene + 1],
            (program->num_scenes - scene) * RANDOM_SCENE_BYTES);
}

static void drop_tie(random_program_t *program, size_t scene, size_t tie)
{
    char *at = program->scenes[scene];
    for (size_t i = 0; i < tie && at != NULL; i++) {
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    char *end = at == NULL ? NULL : strchr(at, '\n');
    if (end != NULL) {
        memmove(at, end + 1, strlen(end + 1) + 1);
    }
}

/* Drops whatever can be dropped while the program still differs. */
static void shrink(uncopy_context_t *context, random_program_t *program, uncopy_options_t *options)
{
    tally_t ignored = {0};
    bool has_shrunk = true;
    random_program_t smaller;
#define TRY_SMALLER(drop, next)                                                 \
    smaller = *program;                                                         \
    drop;                                                                       \
    if (run_program(context, &smaller, options, &ignored) == VERDICT_DIFFERS) { \
        *program = smaller;                                                     \
        has_shrunk = true;                                                      \
        next;                                                                   \
    }
    while (has_shrunk) {
        has_shrunk = false;
        for (size_t s = program->num_scenes; s-- > 0 && program->num_scenes > 1;) {
            TRY_SMALLER(drop_scene(&smaller, s), (void)0)
        }
        for (size_t i = program->num_lines; i-- > 1;) {
            TRY_SMALLER(drop_line(&smaller, i), (void)0)
        }
        for (size_t s = 0; s < program->num_scenes; s++) {
            for (size_t tie = 8; tie-- > 0;) {
                size_t before = strlen(program->scenes[s]);
                smaller = *program;
                drop_tie(&smaller, s, tie);
                if (strlen(smaller.scenes[s]) != before &&
                    run_program(context, &smaller, options, &ignored) == VERDICT_DIFFERS) {
                    *program = smaller;
                    has_shrunk = true;
                }
            }
        }
        uncopy_options_t kept = *options;
        *options = (uncopy_options_t){0};
        if (run_program(context, program, options, &ignored) != VERDICT_DIFFERS) {
            *options = kept;
        }
    }
#undef TRY_SMALLER
}

static void report(uncopy_context_t *context, random_program_t *program, uncopy_options_t *options,
                   uint64_t seed)
{
    tally_t ignored = {0};
    int kept = silence_begin();
    shrink(context, program, options);
    silence_end(kept);
    printf("seed %" PRIu64 ": order=%d kernels=%d overlap=%d\n", seed, (int)options->order,
           (int)options->kernels, options->has_overlap);
    for (size_t i = 0; i < program->num_lines; i++) {
        printf("%s\n", program->lines[i]);
    }
    for (size_t s = 0; s < program->num_scenes; s++) {
        printf("--- scene %zu\n%s", s + 1, program->scenes[s]);
    }
    (void)run_program(context, program, options, &ignored);
}

/* ---- all programs ---- */

static void choose_options(random_source_t *random, uncopy_options_t *options)
{
    static const uncopy_order_t orders[] = {UNCOPY_ORDER_BFS, UNCOPY_ORDER_DFS, UNCOPY_ORDER_RDFS,
                                            UNCOPY_ORDER_STABLE_RDFS};
    *options = (uncopy_options_t){0};
    if (random_chance(random, 50)) {
        return;
    }
    options->order =
        random_chance(random, 50) ? orders[random_below(random, 4)] : UNCOPY_ORDER_PROGRAM;
    options->kernels = random_chance(random, 35) ? UNCOPY_KERNELS_EXTERN : UNCOPY_KERNELS_NATIVE;
    options->has_overlap = random_chance(random, 45);
}

static bool test_program(uncopy_context_t *context, uint64_t seed, tally_t *tally)
{
    static random_program_t program;
    uncopy_options_t options;
    random_source_t random = {seed ^ 0x5DEECE66DU};
    choose_options(&random, &options);
    random_program_make(&program, seed);
    int kept = silence_begin();
    verdict_t verdict = run_program(context, &program, &options, tally);
    silence_end(kept);
    tally->programs++;
    tally->undefined += verdict == VERDICT_UNDEFINED;
    if (verdict == VERDICT_DIFFERS) {
        report(context, &program, &options, seed);
    }
    return verdict != VERDICT_DIFFERS;
}

static double setting(const char *name, double otherwise)
{
    const char *value = getenv(name);
    return value == NULL ? otherwise : strtod(value, NULL);
}

int main(void)
{
    tally_t tally = {0};
    uncopy_context_t *context = NULL;
    int64_t count = (int64_t)(NUM_PROGRAMS * setting("UNCOPY_TEST_SCALE", 1));
    uint64_t first = (uint64_t)setting("UNCOPY_TEST_SEED", 1);
    int reports = 0;
    CHECK(uncopy_context_create(NULL, NULL, &context) == UNCOPY_OK);
    for (int64_t i = 0; i < count && reports < MAX_REPORTS; i++) {
        bool is_equal = test_program(context, first + (uint64_t)i, &tally);
        reports += is_equal ? 0 : 1;
        CHECK(is_equal);
    }
    print_tally(&tally);
    CHECK(tally.removed > 0 || count < 100);
    uncopy_context_release(context);
    return check_finish("test_random_programs");
}
