/* The printer of the text language: one line for each part of the program, in an order in which the
 * parser meets nothing before its declaration. Views keep their order and thus their numbers. */
#include "ir/text.h"

#include <ctype.h>
#include <string.h>

#include "ir/text_number.h"
#include "ir/text_print.h"
#include "ir/text_words.h"

/* ---- words ---- */

static bool is_identifier(const char *text)
{
    bool is_name = text[0] != '\0' && !isdigit((unsigned char)text[0]);
    for (; *text != '\0'; text++) {
        is_name = is_name && (isalnum((unsigned char)*text) || *text == '_');
    }
    return is_name;
}

static void print_quoted(text_t *text, const char *words)
{
    text_append(text, "\"");
    for (; *words != '\0'; words++) {
        unsigned char byte = (unsigned char)*words;
        if (byte == '"' || byte == '\\') {
            text_append(text, "\\%c", byte);
        } else if (byte < ' ' || byte == 127) {
            text_append(text, "\\x%02x", byte);
        } else {
            text_append(text, "%c", byte);
        }
    }
    text_append(text, "\"");
}

static bool is_bare_file(const char *file)
{
    return file[0] != '\0' &&
           file[strspn(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789_./-+~")] == '\0';
}

/* ---- declarations ---- */

static void print_elements(text_t *text, const ir_storage_t *storage, uncopy_dtype_t dtype)
{
    char buffer[NUMBER_TEXT_BYTES];
    const char *bytes = storage->bytes;
    size_t size = uncopy_dtype_size(dtype);
    text_append(text, " =");
    for (size_t at = 0; at + size <= storage->size_bytes; at += size) {
        number_format_element(dtype, bytes + at, buffer);
        text_append(text, "%s %s", at == 0 ? "" : ",", buffer);
    }
}

static void print_first_view(printer_t *printer, const ir_storage_t *storage, const ir_view_t *view)
{
    static const char *const words[] = {[IR_STORAGE_ARGUMENT] = "argument",
                                        [IR_STORAGE_CONSTANT] = "constant",
                                        [IR_STORAGE_SCRATCH] = "scratch",
                                        [IR_STORAGE_FRESH] = "fresh"};
    text_append(printer->text, "%s %s ", words[storage->kind], view->name);
    print_layout(printer, view);
    if (storage->kind == IR_STORAGE_CONSTANT) {
        print_elements(printer->text, storage, view->dtype);
    }
}

static void print_other_view(printer_t *printer, const ir_storage_t *storage, const ir_view_t *view)
{
    text_append(printer->text, "view %s = %s ", view->name,
                printer->program->views[storage->first_view].name);
    print_layout(printer, view);
    if (view->offset_bytes != 0 || view->is_from_storage) {
        text_append(printer->text, " +");
        print_dim(printer, view->offset_bytes);
    }
    if (view->is_from_storage) {
        text_append(printer->text, " from storage");
    }
}

static void print_views(printer_t *printer)
{
    const ir_program_t *program = printer->program;
    for (size_t v = 0; v < program->num_views; v++) {
        const ir_view_t *view = &program->views[v];
        const ir_storage_t *storage = &program->storages[view->storage];
        print_needed_dims(printer, view);
        if (storage->first_view == v) {
            print_first_view(printer, storage, view);
        } else {
            print_other_view(printer, storage, view);
        }
        text_append(printer->text, "\n");
    }
    print_remaining_symbols(printer);
    print_numbers(printer);
}

static void print_groups(const ir_program_t *program, text_t *text)
{
    for (size_t g = 0; g < program->num_groups; g++) {
        const ir_group_t *group = &program->groups[g];
        text_append(text, "group %s ", group->token);
        print_quoted(text, group->name);
        text_append(text, " size %d rank %d\n", group->size, group->rank);
    }
}

/* ---- operations ---- */

static void print_number(text_t *text, const uncopy_operand_t *operand)
{
    char buffer[NUMBER_TEXT_BYTES];
    if (operand->is_integer) {
        text_append(text, "%lld", (long long)operand->integer);
    } else {
        number_format(operand->number, buffer);
        text_append(text, "%s", buffer);
    }
}

static void print_reads(const ir_program_t *program, text_t *text, const ir_operation_t *operation,
                        const char *between)
{
    for (size_t i = 0; i < operation->num_reads; i++) {
        text_append(text, "%s", i == 0 ? " " : between);
        if (operation->reads[i].view == UNCOPY_NONE) {
            print_number(text, &operation->reads[i]);
        } else {
            text_append(text, "%s", program->views[operation->reads[i].view].name);
        }
    }
}

static void print_view_names(const ir_program_t *program, text_t *text, const char *before,
                             const uncopy_view_t *views, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        text_append(text, "%s%s", i == 0 ? before : ", ", program->views[views[i]].name);
    }
}

static void print_positional(const ir_program_t *program, text_t *text,
                             const ir_operation_t *operation)
{
    if (operation->opcode == OPCODE_EXTERN) {
        if (operation->target != NULL) {
            text_append(text, " ");
            print_quoted(text, operation->target);
        }
        text_append(text, "%s", operation->num_reads > 0 ? " reads" : "");
        print_reads(program, text, operation, ", ");
        print_view_names(program, text, " writes ", operation->writes, operation->num_writes);
    } else {
        print_reads(program, text, operation, operation->opcode == OPCODE_ORDER ? " after " : ", ");
        print_view_names(program, text, operation->opcode == OPCODE_FENCE ? " " : " -> ",
                         operation->writes, operation->num_writes);
    }
    print_view_names(program, text, " returns ", operation->returns, operation->num_returns);
}

static bool is_same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static void print_attributes(text_t *text, const ir_operation_t *operation)
{
    const char *name = NULL;
    size_t length = 0;
    double value = 0;
    char buffer[NUMBER_TEXT_BYTES];
    for (size_t i = 0; op_attribute(operation->opcode, i, &name, &length, &value); i++) {
        if (!is_same_number(operation->attributes[i], value)) {
            number_format(operation->attributes[i], buffer);
            size_t digits = strlen(buffer);
            bool is_whole =
                digits > 2 && strcmp(buffer + digits - 2, ".0") == 0 && strcmp(buffer, "-0.0") != 0;
            buffer[is_whole ? digits - 2 : digits] = '\0';
            text_append(text, " %.*s=%s", (int)length, name, buffer);
        }
    }
}

static void print_effects(text_t *text, unsigned effects)
{
    bool is_first = true;
    for (size_t i = 0; i < WORDS_NUM_EFFECTS; i++) {
        if ((effects & words_effects[i].bit) != 0) {
            text_append(text, "%s %s", is_first ? " effects" : "", words_effects[i].word);
            is_first = false;
        }
    }
}

static void print_operation(const ir_program_t *program, text_t *text,
                            const ir_operation_t *operation)
{
    text_append(text, "%s", op_row(operation->opcode)->name);
    print_positional(program, text, operation);
    print_attributes(text, operation);
    if (operation->group != UNCOPY_NONE) {
        text_append(text, " group %s", program->groups[operation->group].token);
    }
    if (operation->opcode != OPCODE_EXTERN && operation->target != NULL) {
        text_append(text, " target ");
        print_quoted(text, operation->target);
    }
    print_effects(text, operation->effects);
    if (operation->host_id >= 0) {
        text_append(text, " id %lld", (long long)operation->host_id);
    }
    if (operation->file != NULL) {
        text_append(text, " @ ");
        if (is_bare_file(operation->file)) {
            text_append(text, "%s", operation->file);
        } else {
            print_quoted(text, operation->file);
        }
        text_append(text, ":%d", operation->line);
    }
    text_append(text, "\n");
}

/* ---- outputs and assumptions ---- */

static void print_assumptions(const printer_t *printer)
{
    const ir_program_t *program = printer->program;
    for (size_t i = 0; i < program->num_assumptions; i++) {
        const ir_assumption_t *assumption = &program->assumptions[i];
        text_append(printer->text, "assume %s = %s %s%lld\n",
                    program->views[program->storages[assumption->a].first_view].name,
                    program->views[program->storages[assumption->b].first_view].name,
                    assumption->offset_bytes < 0 ? "" : "+", (long long)assumption->offset_bytes);
    }
    for (size_t i = 0; i < printer->num_ordered; i++) {
        const ir_symbol_t *symbol = &program->symbols[printer->symbol_order[i]];
        if (symbol->assumed >= 0) {
            text_append(printer->text, "assume %s = %lld\n", symbol->name,
                        (long long)symbol->assumed);
        }
    }
}

void ir_print(const ir_program_t *program, text_t *text)
{
    printer_t printer;
    if (print_init(&printer, program, text) != UNCOPY_OK) {
        text->has_failed = 1;
        return;
    }
    text_append(text, "program ");
    if (is_identifier(program->name)) {
        text_append(text, "%s", program->name);
    } else {
        print_quoted(text, program->name);
    }
    text_append(text, "\n");
    print_views(&printer);
    print_groups(program, text);
    for (size_t i = 0; i < program->num_operations; i++) {
        print_operation(program, text, &program->operations[i]);
    }
    for (size_t i = 0; i < program->num_outputs; i++) {
        text_append(text, "output %s\n", program->views[program->outputs[i]].name);
    }
    print_assumptions(&printer);
    print_release(&printer);
}
