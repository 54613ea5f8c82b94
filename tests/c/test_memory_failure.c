/* The n-th allocation fails, for every n: each call says so, releases all it took, and leaves what
 * was there usable. */
#include "check.h"
#include "uncopy/uncopy.h"

#include <stdlib.h>
#include <string.h>

static const char text[] = "program opp\n"
                           "argument w_buffer f32[256]\n"
                           "argument new f32[256]\n"
                           "argument x f32[2,8]\n"
                           "argument w1 f32[8,16]\n"
                           "argument w2 f32[16,8]\n"
                           "scratch t f32[256]\n"
                           "scratch h f32[2,16]\n"
                           "fresh o f32[2,8]\n"
                           "fresh p f32[2,8]\n"
                           "add new, 0 -> t @ opp.py:1\n"
                           "copy t -> w_buffer @ opp.py:2\n"
                           "matmul x, w1 -> h @ opp.py:3\n"
                           "matmul h, w2 -> o @ opp.py:4\n"
                           "mul x, 2 -> p @ opp.py:5\n"
                           "output o, p\n";

/* An allocator whose call number fails_at fails, and that counts what is out. */
typedef struct fragile {
    long calls, fails_at, live;
} fragile_t;

static void *fragile_allocate(void *self, size_t size)
{
    fragile_t *fragile = self;
    if (++fragile->calls == fragile->fails_at) {
        return NULL;
    }
    void *pointer = aligned_alloc(64, (size + 63) / 64 * 64);
    fragile->live += pointer != NULL;
    return pointer;
}

static void fragile_release(void *self, void *pointer, size_t size)
{
    (void)size;
    ((fragile_t *)self)->live--;
    free(pointer);
}

typedef struct scene {
    float buffer[256], fresh[256], x[16];
    uncopy_argument_t arguments[5];
} scene_t;

static const int64_t sizes_flat[] = {256};
static const int64_t sizes_x[] = {2, 8};
static const int64_t sizes_w1[] = {8, 16};
static const int64_t sizes_w2[] = {16, 8};

static uncopy_argument_t argument(float *data, int32_t rank, const int64_t *sizes)
{
    return (uncopy_argument_t){
        .data = data, .storage_bytes = -1, .dtype = UNCOPY_DTYPE_F32, .rank = rank, .sizes = sizes};
}

static void make_scene(scene_t *scene)
{
    for (int i = 0; i < 256; i++) {
        scene->buffer[i] = 0;
        scene->fresh[i] = (float)(i % 7);
    }
    for (int i = 0; i < 16; i++) {
        scene->x[i] = (float)i;
    }
    scene->arguments[0] = argument(scene->buffer, 1, sizes_flat);
    scene->arguments[1] = argument(scene->fresh, 1, sizes_flat);
    scene->arguments[2] = argument(scene->x, 2, sizes_x);
    scene->arguments[3] = argument(scene->buffer, 2, sizes_w1);
    scene->arguments[4] = argument(scene->buffer + 128, 2, sizes_w2);
}

/* Runs twice while the first run's outputs are kept: the second fails without touching them. */
static uncopy_status_t run_twice(uncopy_function_t *function, const scene_t *scene)
{
    uncopy_argument_t first[2];
    uncopy_argument_t second[2];
    uncopy_status_t status = uncopy_function_run(function, scene->arguments, 5, NULL, first, NULL);
    if (status != UNCOPY_OK) {
        return status;
    }
    status = uncopy_function_run(function, scene->arguments, 5, NULL, second, NULL);
    if (status == UNCOPY_OK) {
        uncopy_function_release_outputs(function, second);
    }
    uncopy_function_release_outputs(function, first);
    return status;
}

/* Parses, plans, prints and runs; the status of the first call that fails. */
static uncopy_status_t live_through_it(fragile_t *fragile, scene_t *scene)
{
    uncopy_allocator_t allocator = {fragile, fragile_allocate, fragile_release};
    uncopy_context_t *context = NULL;
    uncopy_program_t *program = NULL;
    uncopy_function_t *function = NULL;
    uncopy_plan_t *plan = NULL;
    char *printed = NULL;
    uncopy_status_t status = uncopy_context_create(&allocator, NULL, &context);
    if (status == UNCOPY_OK) {
        status = uncopy_program_parse(context, text, strlen(text), &program);
    }
    if (status == UNCOPY_OK) {
        status = uncopy_function_create(program, NULL, NULL, &function);
    }
    if (status == UNCOPY_OK) {
        status = uncopy_function_plan(function, scene->arguments, 5, &plan);
    }
    if (status == UNCOPY_OK) {
        status = uncopy_plan_explain(plan, &printed);
    }
    if (status == UNCOPY_OK) {
        uncopy_text_release(context, printed);
        status = run_twice(function, scene);
    }
    uncopy_plan_release(plan);
    uncopy_function_release(function);
    uncopy_program_release(program);
    uncopy_context_release(context);
    return status;
}

int main(void)
{
    scene_t scene;
    make_scene(&scene);
    fragile_t whole = {0, 0, 0};
    CHECK(live_through_it(&whole, &scene) == UNCOPY_OK);
    CHECK_EQUAL_I64(whole.live, 0);
    CHECK(whole.calls > 10);
    CHECK(scene.buffer[5] == scene.fresh[5]);
    for (long n = 1; n <= whole.calls; n++) {
        fragile_t fragile = {0, n, 0};
        make_scene(&scene);
        CHECK(live_through_it(&fragile, &scene) == UNCOPY_ERROR_MEMORY);
        CHECK(strstr(uncopy_last_message(), "no memory") != NULL);
        CHECK_EQUAL_I64(fragile.live, 0);
    }
    return check_finish("memory_failure");
}
