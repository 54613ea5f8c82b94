#include "call.h"

#include "check.h"
#include "cpu/cpu.h"
#include "cpu/tile.h"

static bool is_tile(const kernel_call_t *call)
{
    return op_row(call->opcode)->class_ == OP_CLASS_POINTWISE || call->opcode == OPCODE_CONVERT;
}

bool call_has_kernel(const kernel_call_t *call)
{
    arena_t arena;
    const tile_program_t *program = NULL;
    tile_runner_t runner;
    if (!is_tile(call)) {
        return cpu_find(call) != NULL;
    }
    arena_init(&arena, &memory_system_allocator);
    bool is_taken = tile_of_call(call, &arena, &program) == UNCOPY_OK &&
                    tile_prepare(program, &arena, &runner) == UNCOPY_OK;
    arena_release(&arena);
    return is_taken;
}

static void run_tile(const kernel_call_t *call, char *const *data)
{
    arena_t arena;
    const tile_program_t *program = NULL;
    tile_runner_t runner;
    char *slots[TILE_MAX_SLOTS];
    int32_t num_slots = 0;
    for (int32_t i = 0; i < call->num_operands; i++) {
        if (!call->operands[i].is_immediate) {
            slots[num_slots++] = data[i];
        }
    }
    arena_init(&arena, &memory_system_allocator);
    if (CHECK(tile_of_call(call, &arena, &program) == UNCOPY_OK) &&
        CHECK(tile_prepare(program, &arena, &runner) == UNCOPY_OK)) {
        int64_t middle = runner.num_units / 2;
        runner.run(runner.kernel, slots, NULL, middle, runner.num_units);
        runner.run(runner.kernel, slots, NULL, 0, middle);
    } else {
        printf("    %s\n", uncopy_last_message());
    }
    arena_release(&arena);
}

void call_run(const kernel_call_t *call, char *const *data)
{
    if (is_tile(call)) {
        run_tile(call, data);
    } else {
        cpu_find(call)(call, data);
    }
}
