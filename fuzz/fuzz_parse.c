/* Fuzz target of the text language: any bytes parse or give an error that names a line; what parses
 * prints to text that parses to the same text, and can be verified. */
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *print(const ir_program_t *program)
{
    text_t text;
    char *taken = NULL;
    text_init(&text, &memory_system_allocator);
    ir_print(program, &text);
    if (text_take(&text, &taken) != UNCOPY_OK) {
        abort();
    }
    return taken;
}

static void check_again(const char *printed)
{
    ir_program_t program;
    if (ir_parse(&program, &memory_system_allocator, printed, strlen(printed)) != UNCOPY_OK) {
        abort();
    }
    char *again = print(&program);
    if (strcmp(printed, again) != 0) {
        abort();
    }
    text_free(&memory_system_allocator, again);
    ir_program_release(&program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ir_program_t program;
    uncopy_status_t status = ir_parse(&program, &memory_system_allocator, (const char *)data, size);
    if (status != UNCOPY_OK) {
        if (strncmp(uncopy_last_message(), "line ", 5) != 0) {
            abort();
        }
        return 0;
    }
    char *printed = print(&program);
    check_again(printed);
    if (ir_verify_assumed(&program) == UNCOPY_ERROR_ARGUMENT) {
        abort();
    }
    text_free(&memory_system_allocator, printed);
    ir_program_release(&program);
    return 0;
}
