#include "text_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copy_bytes(const char *bytes, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    return copy;
}

char *text_case_copy(const char *text)
{
    return copy_bytes(text, strlen(text));
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    size_t length = 0;
    size_t room = 0;
    if (file == NULL) {
        printf("%s: cannot be read\n", path);
        return NULL;
    }
    do {
        room = room == 0 ? 1 << 16 : room * 2;
        bytes = realloc(bytes, room);
        if (bytes == NULL) {
            abort();
        }
        length += fread(bytes + length, 1, room - length - 1, file);
    } while (length == room - 1);
    bytes[length] = '\0';
    (void)fclose(file);
    return bytes;
}

static bool starts_section(const char *line)
{
    return strncmp(line, "--- ", 4) == 0;
}

static const char *next_line(const char *at)
{
    const char *end = strchr(at, '\n');
    return end == NULL ? at + strlen(at) : end + 1;
}

/* The first line at or after `at` that starts a section, or the end. */
static const char *find_section(const char *at, int *line)
{
    while (*at != '\0' && !starts_section(at)) {
        at = next_line(at);
        ++*line;
    }
    return at;
}

static size_t trimmed_length(const char *start, const char *end)
{
    while (end > start && (end[-1] == '\n' || end[-1] == ' ' || end[-1] == '\r')) {
        end--;
    }
    return (size_t)(end - start);
}

static void add_section(text_case_t *test, text_section_t section)
{
    test->sections = realloc(test->sections, (test->num_sections + 1) * sizeof(*test->sections));
    if (test->sections == NULL) {
        abort();
    }
    test->sections[test->num_sections++] = section;
}

bool text_case_read(const char *path, text_case_t *out_case)
{
    char *bytes = read_file(path);
    int line = 1;
    if (bytes == NULL) {
        return false;
    }
    *out_case = (text_case_t){.path = path};
    const char *at = find_section(bytes, &line);
    out_case->program = copy_bytes(bytes, (size_t)(at - bytes));
    while (*at != '\0') {
        text_section_t section = {.line = line};
        const char *body = next_line(at);
        line++;
        const char *end = find_section(body, &line);
        section.title = copy_bytes(at + 4, trimmed_length(at + 4, body));
        section.body = copy_bytes(body, trimmed_length(body, end));
        add_section(out_case, section);
        at = end;
    }
    free(bytes);
    return true;
}

bool text_case_write(const text_case_t *test)
{
    FILE *file = fopen(test->path, "wb");
    if (file == NULL) {
        printf("%s: cannot be written\n", test->path);
        return false;
    }
    (void)fputs(test->program, file);
    for (size_t i = 0; i < test->num_sections; i++) {
        const text_section_t *section = &test->sections[i];
        (void)fprintf(file, "--- %s\n%s%s", section->title, section->body,
                      section->body[0] == '\0' ? "" : "\n");
    }
    return fclose(file) == 0;
}

void text_case_release(text_case_t *test)
{
    for (size_t i = 0; i < test->num_sections; i++) {
        free(test->sections[i].title);
        free(test->sections[i].body);
    }
    free(test->sections);
    free(test->program);
}

void text_case_replace(char **text, const char *words, bool *is_changed)
{
    size_t length = trimmed_length(words, words + strlen(words));
    if (strlen(*text) != length || memcmp(*text, words, length) != 0) {
        *is_changed = true;
        free(*text);
        *text = copy_bytes(words, length);
    }
}

char *text_case_assume(const char *text, const char *assumes)
{
    size_t length = 0;
    char *result = malloc(strlen(text) + strlen(assumes) + 2);
    if (result == NULL) {
        abort();
    }
    for (const char *at = text; *at != '\0'; at = next_line(at)) {
        size_t size = (size_t)(next_line(at) - at);
        if (strncmp(at, "assume ", 7) != 0) {
            memcpy(result + length, at, size);
            length += size;
        }
    }
    (void)sprintf(result + length, "%s\n", assumes);
    return result;
}
