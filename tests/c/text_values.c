/* Runs of one program on memory that the assume lines describe: by a function with the passes of
 * the options, by one without passes, and by the reference. All three start from equal bytes and
 * must end with equal bytes, outputs and sharing of outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "scene.h"
#include "text_case.h"

/* ---- one run ---- */

typedef struct run {
    char *image;
    uncopy_argument_t *arguments;
    uncopy_argument_t *outputs;
    uncopy_status_t status;
    bool has_planned;
} run_t;

static void run_init(run_t *run, const scene_t *scene)
{
    const ir_program_t *program = &scene->program;
    *run = (run_t){.image = scene_memory(scene->image_bytes)};
    run->arguments = calloc(program->num_arguments + 1, sizeof(*run->arguments));
    run->outputs = calloc(program->num_outputs + 1, sizeof(*run->outputs));
    if (run->arguments == NULL || run->outputs == NULL) {
        abort();
    }
    memcpy(run->image, scene->image, (size_t)scene->image_bytes);
    for (size_t a = 0; a < program->num_arguments; a++) {
        uncopy_view_t first = program->storages[a].first_view;
        const reference_place_t *place = &scene->places[a];
        run->arguments[a] = (uncopy_argument_t){.data = run->image + place->data,
                                                .storage = run->image + place->storage,
                                                .storage_bytes = place->storage_bytes,
                                                .dtype = program->views[first].dtype,
                                                .rank = program->views[first].rank,
                                                .sizes = scene->extents[first].span.sizes,
                                                .strides = scene->extents[first].element_strides};
    }
}

static void run_release(run_t *run)
{
    free(run->image);
    free(run->arguments);
    free(run->outputs);
}

static uncopy_bound_t bound_of(const uncopy_argument_t *tensor)
{
    return (uncopy_bound_t){.data = tensor->data,
                            .dtype = tensor->dtype,
                            .rank = tensor->rank,
                            .sizes = tensor->sizes,
                            .strides = tensor->strides};
}

static void run_function(run_t *run, text_function_t *function, const scene_t *scene)
{
    uncopy_run_t out = {0};
    uncopy_bound_t kept = {0};
    size_t count = scene->program.num_arguments;
    if (count > 0) {
        kept = bound_of(&run->arguments[0]);
    }
    run->status =
        uncopy_function_run(function->function, run->arguments, count, &kept, run->outputs, &out);
    run->has_planned = out.has_planned != 0;
    uncopy_plan_release(out.plan);
}

/* Frees what the run made, after the host has checked it. Whether it found nothing. */
static bool finish_run(const run_t *run, text_function_t *function, const scene_t *scene)
{
    int64_t before = function->host.num_violations;
    size_t count = scene->program.num_outputs;
    void **outputs = calloc(count + 1, sizeof(*outputs));
    for (size_t i = 0; outputs != NULL && i < count; i++) {
        outputs[i] = run->outputs[i].data;
    }
    fake_host_finish(&function->host, outputs, run->status == UNCOPY_OK ? count : 0,
                     run->status != UNCOPY_OK);
    free(outputs);
    return function->host.num_violations == before && before == 0;
}

/* ---- comparison ---- */

static const char *output_name(const scene_t *scene, size_t output)
{
    return scene->program.views[scene->program.outputs[output]].name;
}

static bool has_layout(const uncopy_argument_t *output, const uncopy_bound_t *expected)
{
    bool is_same = output->dtype == expected->dtype && output->rank == expected->rank;
    for (int32_t d = 0; is_same && d < expected->rank; d++) {
        int64_t stride = output->strides == NULL ? expected->strides[d] : output->strides[d];
        is_same = output->sizes[d] == expected->sizes[d] &&
                  (stride == expected->strides[d] || expected->sizes[d] <= 1);
    }
    return is_same;
}

/* Outputs share memory with arguments, and with each other, where the program says so. */
static bool shares_alike(const run_t *run, const scene_t *scene, const reference_t *reference,
                         size_t output)
{
    const ir_program_t *program = &scene->program;
    uncopy_bound_t expected = reference_bound(reference, program->outputs[output]);
    uint32_t storage = program->views[program->outputs[output]].storage;
    const char *data = run->outputs[output].data;
    bool is_inside = data >= run->image && data < run->image + scene->image_bytes;
    if (storage < program->num_arguments) {
        return data - run->image == (char *)expected.data - reference->image;
    }
    bool is_fine = !is_inside;
    for (size_t i = 0; i < output; i++) {
        uncopy_bound_t other = reference_bound(reference, program->outputs[i]);
        const char *other_data = run->outputs[i].data;
        if (program->views[program->outputs[i]].storage == storage) {
            is_fine = is_fine && data - other_data == (char *)expected.data - (char *)other.data;
        } else if (element_count(&other) > 0 && element_count(&expected) > 0) {
            is_fine = is_fine && data != other_data;
        }
    }
    return is_fine;
}

static bool compare_output(const run_t *run, const scene_t *scene, const reference_t *reference,
                           size_t output, bool is_close)
{
    uncopy_bound_t expected = reference_bound(reference, scene->program.outputs[output]);
    uncopy_bound_t found = bound_of(&run->outputs[output]);
    if (!has_layout(&run->outputs[output], &expected)) {
        printf("    output %s has another dtype, size or stride\n", output_name(scene, output));
        return false;
    }
    found.strides = found.strides == NULL ? expected.strides : found.strides;
    if (!shares_alike(run, scene, reference, output)) {
        printf("    output %s shares other memory\n", output_name(scene, output));
        return false;
    }
    if (!(is_close ? element_is_close(&found, &expected) : element_is_equal(&found, &expected))) {
        printf("    output %s has other values\n", output_name(scene, output));
        return false;
    }
    return true;
}

/* The caller's memory: bytes, or argument by argument where values may differ a little. */
static bool compare_image(const run_t *run, const scene_t *scene, const reference_t *reference,
                          bool is_close)
{
    bool is_equal = memcmp(run->image, reference->image, (size_t)scene->image_bytes) == 0;
    for (uint32_t a = 0; a < scene->program.num_arguments; a++) {
        uncopy_view_t first = scene->program.storages[a].first_view;
        uncopy_bound_t expected = reference_bound(reference, first);
        uncopy_bound_t found = expected;
        found.data = run->image + scene->places[a].data;
        if (!(is_close ? element_is_close(&found, &expected)
                       : element_is_equal(&found, &expected))) {
            printf("    argument %s has other values\n", scene->program.views[first].name);
            return false;
        }
    }
    if (!is_equal && !is_close) {
        printf("    bytes between the arguments' elements have changed\n");
    }
    return is_equal || is_close;
}

static bool compare(const run_t *run, const scene_t *scene, const reference_t *reference,
                    bool is_close)
{
    if (reference->has_failed != (run->status == UNCOPY_ERROR_HOST) ||
        (!reference->has_failed && run->status != UNCOPY_OK)) {
        printf("    status is \"%s\" (%s), expected %s\n", uncopy_status_name(run->status),
               run->status == UNCOPY_OK ? "" : uncopy_last_message(),
               reference->has_failed ? "host" : "ok");
        return false;
    }
    bool is_same = compare_image(run, scene, reference, is_close);
    for (size_t i = 0; !reference->has_failed && i < scene->program.num_outputs; i++) {
        is_same = compare_output(run, scene, reference, i, is_close) && is_same;
    }
    return is_same;
}

/* Two runs, each on fresh memory; the second must not plan. */
static bool check_function(text_function_t *function, const char *words, const scene_t *scene,
                           const reference_t *reference, bool is_close)
{
    bool is_fine = true;
    for (int round = 0; is_fine && round < 2; round++) {
        run_t run;
        run_init(&run, scene);
        run_function(&run, function, scene);
        is_fine = compare(&run, scene, reference, is_close);
        is_fine = finish_run(&run, function, scene) && is_fine;
        if (round == 1 && run.has_planned) {
            printf("    planned again for the same facts\n");
            is_fine = false;
        }
        if (!is_fine) {
            printf("    in run %d %s\n", round + 1, words);
        }
        run_release(&run);
    }
    return is_fine;
}

bool text_values_check(text_values_t *values, const char *program, bool is_close)
{
    scene_t scene;
    reference_t reference;
    if (!scene_init(&scene, program)) {
        return false;
    }
    char *image = scene_memory(scene.image_bytes);
    memcpy(image, scene.image, (size_t)scene.image_bytes);
    bool is_fine = reference_init(&reference, &scene.program, scene.extents, scene.places, image);
    if (is_fine) {
        reference_run(&reference);
        is_fine = check_function(&values->with_passes, "with passes", &scene, &reference, is_close);
        is_fine = check_function(&values->without_passes, "without passes", &scene, &reference,
                                 is_close) &&
                  is_fine;
        reference_release(&reference);
    }
    free(image);
    scene_release(&scene);
    return is_fine;
}

uncopy_status_t text_values_run(text_values_t *values, const char *program)
{
    scene_t scene;
    run_t run;
    if (!scene_init(&scene, program)) {
        return UNCOPY_ERROR_PARSE;
    }
    run_init(&run, &scene);
    run_function(&run, &values->with_passes, &scene);
    uncopy_status_t status = run.status;
    (void)finish_run(&run, &values->with_passes, &scene);
    run_release(&run);
    scene_release(&scene);
    return status;
}

/* ---- functions ---- */

static bool open_function(text_function_t *function, uncopy_context_t *context, const char *text,
                          const uncopy_options_t *options)
{
    uncopy_program_t *program = NULL;
    fake_host_init(&function->host, &function->entries);
    uncopy_status_t status = uncopy_program_parse(context, text, strlen(text), &program);
    if (status == UNCOPY_OK) {
        status = uncopy_function_create(program, options, &function->entries, &function->function);
    }
    uncopy_program_release(program);
    if (status != UNCOPY_OK) {
        printf("    no function: %s\n", uncopy_last_message());
    }
    return status == UNCOPY_OK;
}

bool text_values_open(text_values_t *values, uncopy_context_t *context, const char *program,
                      const uncopy_options_t *options)
{
    uncopy_options_t off = *options;
    text_values_close(values);
    values->context = context;
    off.passes_off |= UNCOPY_PASS_NORMALISE | UNCOPY_PASS_ELIDE | UNCOPY_PASS_PLACE;
    off.strict = 0;
    return open_function(&values->with_passes, context, program, options) &&
           open_function(&values->without_passes, context, program, &off);
}

static void close_function(text_function_t *function)
{
    uncopy_function_release(function->function);
    function->function = NULL;
    fake_host_release(&function->host);
}

void text_values_close(text_values_t *values)
{
    close_function(&values->with_passes);
    close_function(&values->without_passes);
}
