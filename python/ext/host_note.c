/* Where in the program an exception of a host's kernel arose: a note on the exception, which keeps
 * its type and words. */
#include "host_internal.h"

#include <stdarg.h>
#include <stdio.h>

enum { NOTE_BYTES = 1024 };

typedef struct note {
    char words[NOTE_BYTES];
    size_t length;
} note_t;

/* What does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void append(note_t *note, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = NOTE_BYTES - note->length;
    int written = vsnprintf(note->words + note->length, room, format, arguments);
    va_end(arguments);
    if (written > 0) {
        note->length += (size_t)written < room ? (size_t)written : room - 1;
    }
}

static void append_operand(note_t *note, const char *before, const uncopy_bound_t *bound)
{
    append(note, "%s%s %s[", before, bound->name != NULL ? bound->name : "a result",
           uncopy_dtype_name(bound->dtype));
    for (int32_t d = 0; d < bound->rank; d++) {
        append(note, "%s%lld", d == 0 ? "" : ", ", (long long)bound->sizes[d]);
    }
    append(note, "]");
}

static void append_operands(note_t *note, const char *verb, const uncopy_bound_t *bounds,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        append_operand(note, i == 0 ? verb : ", ", &bounds[i]);
    }
}

static void append_place(note_t *note, const char *operation, const char *file, int line)
{
    append(note, "in %s", operation);
    if (file != NULL) {
        append(note, " (%s:%d)", file, line);
    }
}

/* Adds the note to the exception that is set. */
static void attach(const note_t *note)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *added =
        value != NULL ? PyObject_CallMethod(value, "add_note", "s", note->words) : NULL;
    Py_XDECREF(added);
    PyErr_Clear(); /* an exception without notes is raised as it is */
    PyErr_Restore(type, value, traceback);
}

void host_note_call(const uncopy_call_t *operation)
{
    note_t note = {.length = 0};
    append_place(&note, operation->target != NULL ? operation->target : "an operation",
                 operation->file, operation->line);
    append_operands(&note, ", which reads ", operation->reads, operation->num_reads);
    append_operands(&note, ", which writes ", operation->writes, operation->num_writes);
    attach(&note);
}

void host_note_collective(const uncopy_collective_t *collective)
{
    note_t note = {.length = 0};
    append_place(&note, collective->operation, collective->file, collective->line);
    if (collective->source != NULL) {
        append_operand(&note, " of ", collective->source);
    }
    if (collective->destination != NULL) {
        append_operand(&note, " into ", collective->destination);
    }
    append(&note, ", group %s of %d", collective->group_name, (int)collective->group_size);
    attach(&note);
}
