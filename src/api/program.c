/* The public face of ir: checks of arguments, freezing, sharing. */
#include <string.h>

#include "api/objects.h"
#include "base/status.h"
#include "ir/text.h"
#include "ir/verify.h"

static uncopy_status_t create_object(uncopy_context_t *context, uncopy_program_t **out_program)
{
    if (context == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no context");
    }
    uncopy_program_t *program = memory_allocate(&context->allocator, sizeof(*program), "a program");
    if (program == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    atomic_init(&program->references, 1);
    atomic_init(&program->is_frozen, false);
    program->context = context;
    uncopy_context_retain(context);
    *out_program = program;
    return UNCOPY_OK;
}

static void free_object(uncopy_program_t *program)
{
    uncopy_context_t *context = program->context;
    memory_release(&context->allocator, program, sizeof(*program));
    uncopy_context_release(context);
}

uncopy_status_t uncopy_program_create(uncopy_context_t *context, const char *name,
                                      uncopy_program_t **out_program)
{
    if (out_program == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no place for the program");
    }
    uncopy_program_t *program = NULL;
    TRY(create_object(context, &program));
    uncopy_status_t status = ir_program_init(&program->ir, &context->allocator, name);
    if (status != UNCOPY_OK) {
        ir_program_release(&program->ir);
        free_object(program);
        return status;
    }
    *out_program = program;
    return UNCOPY_OK;
}

uncopy_status_t uncopy_program_parse(uncopy_context_t *context, const char *text, size_t length,
                                     uncopy_program_t **out_program)
{
    if (text == NULL || out_program == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no text, or no place for the program");
    }
    uncopy_program_t *program = NULL;
    TRY(create_object(context, &program));
    uncopy_status_t status = ir_parse(&program->ir, &context->allocator, text, length);
    if (status != UNCOPY_OK) {
        free_object(program);
        return status;
    }
    *out_program = program;
    return UNCOPY_OK;
}

void uncopy_program_retain(uncopy_program_t *program)
{
    /* relaxed: whoever calls holds a reference already */
    atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
}

void uncopy_program_release(uncopy_program_t *program)
{
    /* acq_rel: pairs with the other releases */
    if (program != NULL &&
        atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) == 1) {
        ir_program_release(&program->ir);
        free_object(program);
    }
}

static uncopy_status_t check_open(const uncopy_program_t *program, const void *result)
{
    if (program == NULL || result == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no program, or no place for the result");
    }
    if (atomic_load(&program->is_frozen)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "program %s belongs to a function or plan: nothing can be added",
                           program->ir.name);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_layout(const uncopy_layout_t *layout)
{
    if (layout == NULL || (layout->rank > 0 && layout->sizes == NULL)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a layout has sizes");
    }
    return UNCOPY_OK;
}

uncopy_status_t uncopy_program_add_argument(uncopy_program_t *program, const char *name,
                                            const uncopy_layout_t *layout, uncopy_view_t *out_view)
{
    TRY(check_open(program, out_view));
    TRY(check_layout(layout));
    return ir_add_argument(&program->ir, name, layout, out_view);
}

uncopy_status_t uncopy_program_add_storage(uncopy_program_t *program, const char *name,
                                           uncopy_storage_kind_t kind,
                                           const uncopy_layout_t *layout, uncopy_view_t *out_view)
{
    TRY(check_open(program, out_view));
    TRY(check_layout(layout));
    ir_storage_kind_t inner = kind == UNCOPY_STORAGE_SCRATCH ? IR_STORAGE_SCRATCH
                              : kind == UNCOPY_STORAGE_FRESH ? IR_STORAGE_FRESH
                                                             : IR_STORAGE_ARGUMENT; /* refused */
    return ir_add_storage(&program->ir, name, inner, layout, out_view);
}

uncopy_status_t uncopy_program_add_constant(uncopy_program_t *program, const char *name,
                                            const uncopy_layout_t *layout, const void *bytes,
                                            size_t size_bytes, uncopy_view_t *out_view)
{
    TRY(check_open(program, out_view));
    TRY(check_layout(layout));
    if (bytes == NULL && size_bytes != 0) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a constant has bytes");
    }
    return ir_add_constant(&program->ir, name, layout, bytes, size_bytes, out_view);
}

uncopy_status_t uncopy_program_add_view(uncopy_program_t *program, const char *name,
                                        uncopy_view_t of, const uncopy_layout_t *layout,
                                        uncopy_dim_t offset_bytes, int is_from_storage,
                                        uncopy_view_t *out_view)
{
    TRY(check_open(program, out_view));
    TRY(check_layout(layout));
    return ir_add_view(&program->ir, name, of, layout, offset_bytes, is_from_storage != 0,
                       out_view);
}

uncopy_status_t uncopy_program_add_symbol(uncopy_program_t *program, const char *name,
                                          uint32_t argument, uncopy_symbol_kind_t kind, int32_t dim,
                                          uncopy_dim_t *out_dim)
{
    TRY(check_open(program, out_dim));
    return ir_add_symbol(&program->ir, name, argument, kind, dim, out_dim);
}

uncopy_status_t uncopy_program_add_expression(uncopy_program_t *program,
                                              uncopy_expression_kind_t kind, uncopy_dim_t a,
                                              uncopy_dim_t b, uncopy_dim_t *out_dim)
{
    TRY(check_open(program, out_dim));
    return ir_add_expression(&program->ir, kind, a, b, out_dim);
}

uncopy_status_t uncopy_program_add_group(uncopy_program_t *program, const char *token,
                                         const char *name, int32_t size, int32_t rank,
                                         uncopy_group_t *out_group)
{
    TRY(check_open(program, out_group));
    return ir_add_group(&program->ir, token, name, size, rank, out_group);
}

uncopy_status_t uncopy_program_add_operation(uncopy_program_t *program,
                                             const uncopy_operation_t *operation)
{
    TRY(check_open(program, operation));
    return ir_add_operation(&program->ir, operation);
}

uncopy_status_t uncopy_program_add_output(uncopy_program_t *program, uncopy_view_t view)
{
    TRY(check_open(program, program));
    return ir_add_output(&program->ir, view);
}

uncopy_status_t uncopy_program_add_number(uncopy_program_t *program, uncopy_dim_t dim,
                                          size_t *out_number)
{
    TRY(check_open(program, out_number));
    return ir_add_number(&program->ir, dim, out_number);
}

uncopy_status_t uncopy_program_assume(uncopy_program_t *program, uncopy_view_t a, uncopy_view_t b,
                                      int64_t offset_bytes)
{
    TRY(check_open(program, program));
    if (a >= program->ir.num_views || b >= program->ir.num_views) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "assume names a view that is not there");
    }
    return ir_assume(&program->ir, ir_argument_of(&program->ir, a), ir_argument_of(&program->ir, b),
                     offset_bytes);
}

uncopy_status_t uncopy_program_verify(const uncopy_program_t *program)
{
    if (program == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no program");
    }
    return ir_verify_assumed(&program->ir);
}

uncopy_status_t uncopy_program_print(const uncopy_program_t *program, char **out_text)
{
    if (program == NULL || out_text == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no program, or no place for the text");
    }
    text_t text;
    text_init(&text, &program->context->allocator);
    ir_print(&program->ir, &text);
    return text_take(&text, out_text);
}

size_t uncopy_program_num_arguments(const uncopy_program_t *program)
{
    return program == NULL ? 0 : program->ir.num_arguments;
}

size_t uncopy_program_num_outputs(const uncopy_program_t *program)
{
    return program == NULL ? 0 : program->ir.num_outputs;
}

size_t uncopy_program_num_numbers(const uncopy_program_t *program)
{
    return program == NULL ? 0 : program->ir.num_numbers;
}

/* ---- the operation table ---- */

static const op_row_t *find_row(const char *name, opcode_t *out_opcode)
{
    return name != NULL && op_find(name, strlen(name), out_opcode) ? op_row(*out_opcode) : NULL;
}

const char *uncopy_operation_find(const char *aten_base_name)
{
    opcode_t opcode = OPCODE_EXTERN;
    if (aten_base_name == NULL || !op_find_aten(aten_base_name, strlen(aten_base_name), &opcode)) {
        return NULL;
    }
    return op_row(opcode)->name;
}

int uncopy_operation_accepts(const char *name, const uncopy_dtype_t *reads, size_t num_reads,
                             uncopy_dtype_t result)
{
    opcode_t opcode = OPCODE_EXTERN;
    if (find_row(name, &opcode) == NULL || !dtype_is_valid(result)) {
        return 0;
    }
    for (size_t i = 0; i < num_reads; i++) {
        if (!dtype_is_valid(reads[i])) {
            return 0;
        }
    }
    return op_accepts(opcode, reads, num_reads, result);
}

int uncopy_operation_num_reads(const char *name)
{
    opcode_t opcode = OPCODE_EXTERN;
    const op_row_t *row = find_row(name, &opcode);
    return row == NULL ? -2 : row->num_reads;
}

const char *uncopy_operation_attributes(const char *name)
{
    opcode_t opcode = OPCODE_EXTERN;
    const op_row_t *row = find_row(name, &opcode);
    return row == NULL ? NULL : row->attributes;
}
