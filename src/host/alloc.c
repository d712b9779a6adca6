/* Heap memory and growing strings. Everything the library allocates comes from here. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>

void *mfi_alloc(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

void *mfi_calloc(size_t count, size_t bytes)
{
    return calloc(count ? count : 1, bytes ? bytes : 1);
}

void *mfi_realloc(void *memory, size_t bytes)
{
    return realloc(memory, bytes ? bytes : 1);
}

void *mfi_alloc_aligned(size_t bytes)
{
    void *memory = NULL;
    if (bytes > SIZE_MAX - 64)
        return NULL;
    return posix_memalign(&memory, 64, mfi_align_up(bytes ? bytes : 1, 64)) ? NULL : memory;
}

void mfi_free_aligned(void *memory)
{
    free(memory);
}

void mf_free(void *memory)
{
    free(memory);
}

char *mfi_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = mfi_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* Make room for `more` bytes and a terminator. */
static bool grow(mfi_text *text, size_t more)
{
    if (text->failed || text->length + more < text->capacity)
        return !text->failed;
    size_t capacity = (text->length + more + 1) * 2;
    char *data = mfi_realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void mfi_text_add(mfi_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length >= 0 && grow(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

void mfi_text_json(mfi_text *text, const char *value)
{
    mfi_text_add(text, "\"");
    for (const char *p = value; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            mfi_text_add(text, "\\%c", c);
        else if (c == '\n')
            mfi_text_add(text, "\\n");
        else if (c < 0x20)
            mfi_text_add(text, "\\u%04x", c);
        else
            mfi_text_add(text, "%c", c);
    }
    mfi_text_add(text, "\"");
}

char *mfi_text_take(mfi_text *text)
{
    if (!text->failed && !text->data)
        grow(text, 0);
    char *data = text->failed ? NULL : text->data;
    if (data)
        data[text->length] = 0;
    else
        mf_free(text->data);
    *text = (mfi_text){0};
    return data;
}

void mfi_text_free(mfi_text *text)
{
    mf_free(text->data);
    *text = (mfi_text){0};
}
