/* Text that grows, and just enough JSON. */
#include "bench_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(bench_text *text, size_t more)
{
    if (text->length + more + 1 <= text->room)
        return;
    text->room = 2 * (text->length + more + 1);
    char *data = realloc(text->data, text->room);
    if (!data) {
        fputs("mathfuse-bench: out of memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    text->data = data;
}

void text_add(bench_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int needed = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    reserve(text, (size_t)needed);
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t)needed + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)needed;
}

void text_string(bench_text *text, const char *string)
{
    text_add(text, "\"");
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_add(text, "\\%c", *c);
        else if ((unsigned char)*c < ' ')
            text_add(text, "\\u%04x", (unsigned)*c);
        else
            text_add(text, "%c", *c);
    }
    text_add(text, "\"");
}

void text_clear(bench_text *text)
{
    free(text->data);
    *text = (bench_text){0};
}

/* What follows "key":, or NULL. */
static const char *value_of(const char *json, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = json; (at = strstr(at, key)); at += length)
        if (at > json && at[-1] == '"' && at[length] == '"' && at[length + 1] == ':')
            return at + length + 2 + strspn(at + length + 2, " ");
    return NULL;
}

double json_number(const char *json, const char *key, double otherwise)
{
    const char *at = value_of(json, key);
    return at ? strtod(at, NULL) : otherwise;
}

double json_sum(const char *json, const char *key)
{
    double sum = 0;
    for (const char *at = json; (at = value_of(at, key));)
        sum += strtod(at, NULL);
    return sum;
}

void json_copy(bench_text *out, const char *json, const char *key)
{
    const char *at = json ? value_of(json, key) : NULL;
    if (!at) {
        text_add(out, "null");
        return;
    }
    int depth = 0, quoted = 0;
    const char *end = at;
    for (; *end; end++) {
        if (*end == '"' && (end == at || end[-1] != '\\'))
            quoted = !quoted;
        else if (!quoted && (*end == '{' || *end == '['))
            depth++;
        else if (!quoted && (*end == '}' || *end == ']') && depth-- == 0)
            break;
        else if (!quoted && *end == ',' && depth == 0)
            break;
    }
    text_add(out, "%.*s", (int)(end - at), at);
}
