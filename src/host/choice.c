/* Choices as text, to keep them in a database and to show them. */
#include "choice.h"

#include <stdlib.h>

static const char *const groupings[MFI_GROUPINGS] = {"by_cost", "apart", "together"};

void mfi_choice_text(const mfi_choice *choice, mfi_text *out)
{
    mfi_text_add(out, "%s", groupings[choice->grouping]);
    for (int i = 0; i < choice->steps; i++) {
        const mfi_step_choice *s = &choice->step[i];
        mfi_text_add(out, "; %s/%d/%s", s->provider ? s->provider->name : "-", s->variant, s->identity);
    }
}

/* Take what stands before `end`, or all; past both, or NULL at the end of the text. */
static const char *take(const char *text, const char *end, char *out, size_t bytes)
{
    const char *stop = strstr(text, end);
    size_t length = stop ? (size_t)(stop - text) : strlen(text);
    if (length >= bytes)
        length = bytes - 1;
    memcpy(out, text, length);
    out[length] = 0;
    return stop ? stop + strlen(end) : NULL;
}

static bool parse_step(mfi_step_choice *out, const char *text)
{
    char name[32], number[16], *end;
    const char *rest = take(text, "/", name, sizeof name);
    if (!rest || !(rest = take(rest, "/", number, sizeof number)))
        return false;
    for (int i = 0; i < mfi_provider_count; i++)
        if (!strcmp(mfi_providers[i]->name, name))
            out->provider = mfi_providers[i];
    long variant = strtol(number, &end, 10);
    out->variant = (int)variant;
    take(rest, "\n", out->identity, sizeof out->identity);
    return (out->provider || !strcmp(name, "-")) && !*end && variant >= 0 && variant < 1 << 16;
}

bool mfi_choice_parse(mfi_choice *out, const char *text)
{
    char word[32], step[64 + MFI_IDENTITY_BYTES];
    memset(out, 0, sizeof *out);
    text = take(text, "; ", word, sizeof word);
    out->grouping = MFI_GROUPINGS;
    for (int i = 0; i < MFI_GROUPINGS; i++)
        out->grouping = strcmp(groupings[i], word) ? out->grouping : (mfi_grouping)i;
    while (text && out->steps < MFI_MAX_CHOICES) {
        text = take(text, "; ", step, sizeof step);
        if (!parse_step(&out->step[out->steps++], step))
            return false;
    }
    return out->grouping < MFI_GROUPINGS && !text;
}
