/* The verifier: each rule has programs that break it alone, and near ones that hold. */
#include <stdlib.h>

#include "base/status.h"
#include "check.h"
#include "ir/text.h"
#include "ir/verify.h"

#define HEAD                                                                                     \
    "program p\nargument a f32[2,3]\nargument b f32[2,3]\nargument i i64[2,3]\n"                 \
    "argument m bool[2,3]\nargument k bf16[2,3]\nargument big f32[4,3]\nconstant c f32[1] = 1\n" \
    "scratch s f32[2,3]\nfresh o f32[2,3]\nfresh q f32[3]\ngroup g \"0\" size 2 rank 1\n"

static uncopy_status_t verify(const char *text)
{
    ir_program_t program;
    uncopy_status_t status = ir_parse(&program, &memory_system_allocator, text, strlen(text));
    if (!CHECK(status == UNCOPY_OK)) {
        printf("    %s    %s\n", text, uncopy_last_message());
        return status;
    }
    status = ir_verify_assumed(&program);
    ir_program_release(&program);
    return status;
}

static void check_holds(const char *text)
{
    if (!CHECK(verify(text) == UNCOPY_OK)) {
        printf("    %s    %s\n", text, uncopy_last_message());
    }
}

/* rule as "v6: "; an empty one takes any words. */
static void check_breaks(const char *rule, const char *text)
{
    bool is_refused = verify(text) == UNCOPY_ERROR_PROGRAM;
    if (!CHECK(is_refused) || !CHECK(strncmp(uncopy_last_message(), rule, strlen(rule)) == 0)) {
        printf("    %s    expected %s, found %s\n", text, rule,
               is_refused ? uncopy_last_message() : "no failure");
    }
}

static void operations_have_the_operands_of_their_row(void)
{
    check_holds(HEAD "add a, b -> o\nadd a, 2 -> a\nadd 1, 2.5 -> a\nfill 0 -> a\ncopy a -> b\n");
    check_breaks("v3: ", HEAD "add a -> o\n");
    check_breaks("v3: ", HEAD "add a, b, b -> o\n");
    check_breaks("v3: ", HEAD "add a, b\n");
    check_breaks("v3: ", HEAD "add a, b -> o, s\n");
    check_breaks("v3: ", HEAD "add a, b -> o returns s\n");
    check_breaks("v3: ", HEAD "all_reduce a -> s group g\nfence s, s\n");
    check_holds(HEAD "extern \"x\"\n");
}

static void numbers_stand_where_the_row_takes_them(void)
{
    check_breaks("v4: ", HEAD "fill a -> b\n");
    check_breaks("v4: ", HEAD "copy 1 -> b\n");
    check_breaks("v4: ", HEAD "convert 1 -> b\n");
    check_breaks("v4: ", HEAD "order 1 after a\n");
    check_breaks("v4: ", HEAD "where 1, m, m -> m\n");
    check_holds(HEAD "where m, 1, a -> b\nextern \"x\" reads 1, 2.5, a\n");
}

static void dtypes_are_what_the_rule_takes(void)
{
    check_breaks("v5: ", HEAD "add a, i -> o\n");
    check_breaks("v5: ", HEAD "add m, m -> m\n");
    check_breaks("v5: ", HEAD "exp i -> i\n");
    check_breaks("v5: ", HEAD "copy a -> k\n");
    check_breaks("v5: ", HEAD "lt a, b -> o\n");
    check_breaks("v5: ", HEAD "where a, a, b -> o\n");
    check_breaks("v5: ", HEAD "lt i, 0.5 -> m\n");
    check_breaks("v5: ", HEAD "add i, +nan -> i\n");
    check_breaks("v5: ", HEAD "add i, -inf -> i\n");
    check_holds(HEAD "lt i, 2.0 -> m\nlt a, 0.5 -> m\nfill 0.5 -> i\nwhere m, 0.5, 1 -> a\n");
    check_holds(HEAD "convert a -> k\nconvert k -> i\nlt a, b -> m\nwhere m, a, b -> o\n"
                     "bitwise_not m -> m\n");
}

static void sizes_of_operands_are_the_results(void)
{
    check_breaks("v6: ", HEAD "add a, big -> o\n");
    check_breaks("v6: ", HEAD "add a, c -> o\n");
    check_breaks("v6: ", HEAD "view t = a f32[3,2]\ncopy t -> o\n");
    check_holds(HEAD "view t = c f32[2,3](0,0)\nadd a, t -> o\nview u = big f32[2,3] +24\n"
                     "copy u -> o\n");
}

#define MATMUL                                                                   \
    "program p\nargument x f32[2,4]\nargument y f32[4,3]\nargument r f32[2,3]\n" \
    "argument bx f32[5,2,4]\nargument by f32[5,4,3]\nargument br f32[5,2,3]\n"   \
    "argument b1 f32[1,4,3]\nargument v f32[4]\nargument w f32[2]\n"

static void shapes_of_matmul_fit(void)
{
    check_holds(MATMUL "matmul x, y -> r\nmatmul bx, by -> br\nview z = y f32[5,4,3](0,3,1)\n"
                       "matmul bx, z -> br\n");
    check_breaks("v7: ", MATMUL "matmul y, x -> r\n");
    check_breaks("v7: ", MATMUL "view t = r f32[3,2]\nmatmul x, y -> t\n");
    check_breaks("v7: ", MATMUL "matmul bx, y -> br\n");
    check_breaks("v7: ", MATMUL "matmul bx, b1 -> br\n");
    check_breaks("v7: ", MATMUL "matmul x, v -> w\n");
}

static void results_list_no_byte_twice(void)
{
    check_breaks("v8: ", HEAD "view t = a f32[2,3](0,1)\nadd b, b -> t\n");
    check_breaks("v8: ", HEAD "view t = a f32[2,3](1,1)\nfill 0 -> t\n");
    check_breaks("v8: ", "program p\nargument a f32[4]\nargument b f32[2]\nargument r f32[9]\n"
                         "group g \"0\" size 2\nview t = a f32[2,2](1,1)\n"
                         "all_gather b -> t group g\nfence t\n");
    check_breaks("v8: ", "program p\nargument a f32[2,2]\nargument b f32[2,2](0,1)\n"
                         "matmul a, a -> b\n");
    check_holds(HEAD "view t = a f32[2,3](0,1)\nadd t, t -> b\nextern \"x\" writes t\n");
}

static void collectives_have_groups(void)
{
    check_breaks("v9: ", HEAD "all_reduce a -> s\nfence s\n");
    check_breaks("v9: ", HEAD "add a, b -> s group g\n");
    ir_program_t program;
    const char *text = HEAD "all_reduce a -> s group g\nfence s\n";
    CHECK(ir_parse(&program, &memory_system_allocator, text, strlen(text)) == UNCOPY_OK);
    CHECK(ir_verify_assumed(&program) == UNCOPY_OK);
    program.groups[0].rank = 2;
    CHECK(ir_verify_assumed(&program) == UNCOPY_ERROR_PROGRAM);
    CHECK(strncmp(uncopy_last_message(), "v9: ", 4) == 0);
    ir_program_release(&program);
}

static void element_counts_of_collectives_fit(void)
{
    check_holds(HEAD
                "all_gather a -> big group g\nfence big\nreduce_scatter big -> a group g\n"
                "fence a\nall_to_all a -> b group g\nfence b\nbroadcast a -> a root=1 group g\n"
                "fence a\nall_reduce a -> o group g\nfence o\n");
    check_breaks("v10: ", HEAD "all_gather a -> b group g\nfence b\n");
    check_breaks("v10: ", HEAD "all_gather big -> a group g\nfence a\n");
    check_breaks("v10: ", HEAD "reduce_scatter a -> big group g\nfence big\n");
    check_breaks("v10: ", HEAD "all_reduce a -> big group g\nfence big\n");
    check_breaks("v10: ", HEAD "all_to_all a -> big group g\nfence big\n");
    check_breaks("v10: ", HEAD "fresh r f32[3]\nall_to_all q -> r group g\nfence r\n");
}

static void constants_are_not_written(void)
{
    check_breaks("v11: ", HEAD "fill 0 -> c\n");
    check_breaks("v11: ", HEAD "extern \"x\" writes c\n");
    check_holds(HEAD "extern \"x\" reads c returns c\n");
}

static void views_lie_in_their_storages(void)
{
    check_breaks("v12: ", HEAD "view t = s f32[2,3] +4\n");
    check_breaks("v12: ", HEAD "view t = c f64[1]\n");
    check_breaks("v12: ", HEAD "view t = o f32[2](6)\n");
    check_holds(HEAD "view t = s f32[3](2) +4\nview u = s f32[0] +400\nview w = a f32[100] +1\n");
}

static void attributes_and_effects_belong_to_the_operation(void)
{
    check_breaks("v13: ", HEAD "broadcast a -> a root=2 group g\nfence a\n");
    check_breaks("v13: ", HEAD "broadcast a -> a root=0.5 group g\nfence a\n");
    check_breaks("v13: ", HEAD "broadcast a -> a root=+nan group g\nfence a\n");
    check_breaks("v13: ", HEAD "add a, b -> o effects random\n");
    check_breaks("v13: ", HEAD "extern \"x\" returns o, s effects out\n");
    check_holds(HEAD "add a, b -> o effects out outlayout id 3\n"
                     "extern \"x\" returns s effects audited out outlayout random\n");
}

static void fences_end_collectives(void)
{
    check_breaks("v14: ", HEAD "fence a\n");
    check_breaks("v14: ", HEAD "all_reduce a -> s group g\nfence s\nfence s\n");
    check_breaks("v14: ", HEAD "view t = s f32[6]\nall_reduce a -> s group g\nfence a\n");
    check_breaks("v14: ", HEAD "view t = s f32[2](1)\nall_reduce a -> s group g\nfence t\n");
    check_holds(HEAD "view t = s f32[2,3]\nall_reduce a -> s group g\nfence t\n");
    check_breaks("v15: ", HEAD "all_reduce a -> s group g\n");
    check_breaks("v15: ", HEAD "all_reduce a -> s group g\nall_reduce b -> o group g\nfence o\n");
}

static void nobody_touches_what_is_in_flight(void)
{
    check_breaks("v16: ", HEAD "all_reduce a -> s group g\nadd s, 1 -> o\nfence s\n");
    check_breaks("v16: ", HEAD "all_reduce a -> s group g\nfill 1 -> s\nfence s\n");
    check_breaks("v16: ", HEAD "view t = s f32[1] +20\nall_reduce a -> s group g\nfill 1 -> t\n"
                               "fence s\n");
    check_breaks("v16: ", HEAD "all_to_all a -> s group g\nfill 1 -> a\nfence s\n");
    check_breaks("v16: ", HEAD "all_to_all a -> s group g\nextern \"x\" writes a\nfence s\n");
    check_breaks("v16: ", HEAD "all_reduce a -> s group g\nall_reduce b -> s group g\nfence s\n"
                               "fence s\n");
    check_holds(HEAD "all_reduce a -> s group g\nfill 1 -> a\nadd b, b -> b\norder b after s\n"
                     "fence s\n");
    check_holds(HEAD "all_to_all a -> s group g\nadd a, 1 -> b\nfence s\nfill 1 -> a\n");
    check_holds(HEAD "view t = big f32[1,3] +36\nview u = big f32[2,3]\n"
                     "all_reduce u -> u group g\nfill 1 -> t\nfence u\n");
}

static void returned_storages_are_made_once(void)
{
    check_breaks("v17: ", HEAD "fill 0 -> o\nextern \"x\" returns o\n");
    check_breaks("v17: ", HEAD "extern \"x\" returns o\nextern \"x\" returns o\n");
    check_breaks("v17: ", HEAD "view t = o f32[6]\nextern \"x\" returns t\n");
    check_breaks("v17: ", HEAD "extern \"x\" returns a\n");
    check_breaks("v17: ", HEAD "extern \"x\" reads b returns a\n");
    check_holds(HEAD
                "view t = o f32[6]\nextern \"x\" returns o, t\nextern \"x\" reads o returns t\n"
                "extern \"x\" reads a returns a\nview u = a f32[1]\n"
                "extern \"x\" writes a returns u, s\n");
}

/* ---- parts that the builder does not let through ---- */

typedef void (*poke_t)(ir_program_t *program);

static void poke_read(ir_program_t *program)
{
    uncopy_operand_t *reads = arena_allocate(&program->arena, 1, 2 * sizeof(*reads));
    reads[0].view = 99;
    program->operations[0].reads = reads;
}

static void poke_first_view(ir_program_t *program)
{
    program->storages[0].first_view = 1;
}

static void poke_offset(ir_program_t *program)
{
    program->views[0].offset_bytes = 4;
}

static void poke_dim(ir_program_t *program)
{
    program->views[0].sizes[0] = -99;
}

static void poke_rank(ir_program_t *program)
{
    program->views[0].rank = 13;
}

static void poke_dtype(ir_program_t *program)
{
    program->views[0].dtype = (uncopy_dtype_t)77;
}

static void poke_output(ir_program_t *program)
{
    program->outputs[0] = 99;
}

static void poke_kind(ir_program_t *program)
{
    program->storages[0].kind = IR_STORAGE_SCRATCH;
}

static void poke_expression(ir_program_t *program)
{
    program->expressions[1].a = -3;
}

static void poke_symbol(ir_program_t *program)
{
    program->symbols[0].dim = 2;
}

static void poke_assumption(ir_program_t *program)
{
    program->assumptions[0].b = 2;
}

static void what_is_named_exists(void)
{
    static const struct {
        const char *rule;
        poke_t poke;
    } pokes[] = {
        {"v1: ", poke_read},   {"v1: ", poke_first_view}, {"v1: ", poke_offset},
        {"v1: ", poke_dim},    {"v2: ", poke_rank},       {"v2: ", poke_dtype},
        {"v1: ", poke_output}, {"v1: ", poke_kind},       {"v1: ", poke_expression},
        {"v1: ", poke_symbol}, {"v1: ", poke_assumption},
    };
    const char *text = "program p\nargument a f32[2,3]\nargument b f32[n]\nfresh o f32[2,3]\n"
                       "view v = b f32[n * 2 - n + 1]\nadd a, a -> o\noutput o\nassume a = b +4\n"
                       "assume n = 4\n";
    for (size_t i = 0; i < sizeof(pokes) / sizeof(pokes[0]); i++) {
        ir_program_t program;
        CHECK(ir_parse(&program, &memory_system_allocator, text, strlen(text)) == UNCOPY_OK);
        CHECK(ir_verify_assumed(&program) == UNCOPY_OK);
        pokes[i].poke(&program);
        if (!CHECK(ir_verify_assumed(&program) == UNCOPY_ERROR_PROGRAM) ||
            !CHECK(strncmp(uncopy_last_message(), pokes[i].rule, 4) == 0)) {
            printf("    poke %zu: %s\n", i, uncopy_last_message());
        }
        ir_program_release(&program);
    }
}

static void numbers_are_not_below_zero_and_countable(void)
{
    ir_program_t program;
    ir_values_t found = {NULL, NULL};
    arena_t arena;
    const char *text = "program p\nargument a f32[2,3]\n";
    arena_init(&arena, &memory_system_allocator);
    CHECK(ir_parse(&program, &memory_system_allocator, text, strlen(text)) == UNCOPY_OK);
    CHECK(ir_evaluate(&program, NULL, &arena, &found) == UNCOPY_OK);
    ir_extent_t *extents = found.extents;
    CHECK(ir_verify(&program, extents) == UNCOPY_OK);
    extents[0].span.sizes[0] = -1;
    CHECK(ir_verify(&program, extents) == UNCOPY_ERROR_PROGRAM);
    CHECK(strncmp(uncopy_last_message(), "v2: ", 4) == 0);
    extents[0].span.sizes[0] = INT64_MAX / 4;
    CHECK(ir_verify(&program, extents) == UNCOPY_ERROR_PROGRAM);
    CHECK(strncmp(uncopy_last_message(), "v2: ", 4) == 0);
    arena_release(&arena);
    ir_program_release(&program);
    check_breaks("", "program p\nargument a f32[n]\nview v = a f32[n - 5]\nassume n = 3\n");
    check_breaks("", "program p\nargument a f32[1152921504606846976,4]\n");
    check_breaks("", "program p\nargument a f32[n]\nview v = a f32[n // 0]\nassume n = 3\n");
}

static void without_values_only_numbers_are_left_out(void)
{
    check_holds("program p\nargument a f32[n]\nargument b f32[m]\nadd a, b -> a\n");
    check_breaks("v3: ", "program p\nargument a f32[n]\nadd a -> a\n");
    check_breaks("v6: ", "program p\nargument a f32[n]\nargument b f32[m]\nadd a, b -> a\n"
                         "assume n = 3\nassume m = 4\n");
    check_holds("program p\nargument a f32[n]\nargument b f32[m]\nadd a, b -> a\nassume n = 3\n"
                "assume m = 3\n");
    check_breaks("v15: ", "program p\nargument a f32[n]\ngroup g \"0\" size 2\n"
                          "all_reduce a -> a group g\n");
    check_holds("program p\nargument a f32[n]\nview b = a f32[n]\ngroup g \"0\" size 2\n"
                "all_reduce a -> a group g\nfence b\n");
}

static void failures_name_operation_line_and_views(void)
{
    check_breaks("v6: operation 1, add (f.py:7): operand 1, big f32[4,3](3,1) +0, has other sizes "
                 "than o f32[2,3](3,1) +0",
                 HEAD "add a, b -> o\nadd a, big -> o @ f.py:7\n");
    check_breaks("v17: operation 0, extern x.y (?:0): returns a",
                 HEAD "extern \"x.y\" returns a\n");
}

int main(void)
{
    what_is_named_exists();
    numbers_are_not_below_zero_and_countable();
    operations_have_the_operands_of_their_row();
    numbers_stand_where_the_row_takes_them();
    dtypes_are_what_the_rule_takes();
    sizes_of_operands_are_the_results();
    shapes_of_matmul_fit();
    results_list_no_byte_twice();
    collectives_have_groups();
    element_counts_of_collectives_fit();
    constants_are_not_written();
    views_lie_in_their_storages();
    attributes_and_effects_belong_to_the_operation();
    fences_end_collectives();
    nobody_touches_what_is_in_flight();
    returned_storages_are_made_once();
    without_values_only_numbers_are_left_out();
    failures_name_operation_line_and_views();
    return check_finish("verify");
}
