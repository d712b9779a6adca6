/* A plan and the tuning database: its key, its policy, what the database says. */
#include "context_internal.h"
#include "nodes.h"
#include "plan_internal.h"
#include "schedule.h"

#include <stdlib.h>

mf_status mfi_tune_policy(mf_tune_policy *out, mf_tune_policy asked)
{
    static const char *const names[] = {"", "off", "cached", "measure", "require"};
    const char *text = getenv("MATHFUSE_TUNE");
    *out = asked == MF_TUNE_DEFAULT ? MF_TUNE_CACHED : asked;
    if (asked != MF_TUNE_DEFAULT || !text || !text[0])
        return MF_OK;
    for (int i = 1; i < (int)MFI_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            *out = (mf_tune_policy)i;
            return MF_OK;
        }
    return mfi_fail(MF_E_INVALID, "MATHFUSE_TUNE is \"%s\"; it may be off, cached, measure or require", text);
}

static unsigned anchors_of(const mf_graph *g)
{
    unsigned anchors = 1u << MFI_MAP;
    for (int i = 0; i < g->count; i++) {
        mfi_node_kind kind = g->node[i].kind;
        anchors |= kind == MFI_N_MATMUL   ? 1u << MFI_MATMUL
                   : kind == MFI_N_FFT    ? 1u << MFI_FFT
                   : kind == MFI_N_SOLVE  ? 1u << MFI_SOLVE
                   : kind == MFI_N_FACTOR ? 1u << MFI_FACTOR
                                          : 0u;
    }
    return anchors;
}

mf_status mfi_tune_key_of(mfi_tune_key *out, const mf_plan *plan)
{
    mfi_text libraries = {0};
    memset(out, 0, sizeof *out);
    mfi_plan_hash(plan, out->problem);
    MF_TRY(mfi_context_fingerprint(plan->context, out->device, sizeof out->device));
    mfi_context_versions(plan->context, anchors_of(plan->graph), &libraries);
    if (libraries.data)
        strncpy(out->libraries, libraries.data, sizeof out->libraries - 1);
    mfi_text_free(&libraries);
    return MF_OK;
}

char *mfi_tuning_json(const mfi_tune_key *key, const mfi_tune_record *r, const char *source)
{
    mfi_text t = {0};
    const char *const names[] = {"problem", "device", "libraries", "source", "title", "winner", "default"};
    const char *const values[] = {key->problem, key->device, key->libraries, source, r->title, r->winner, r->baseline};
    mfi_text_add(&t, "{");
    for (size_t i = 0; i < MFI_COUNT(names); i++) {
        mfi_text_add(&t, "\"%s\": ", names[i]);
        mfi_text_json(&t, values[i] ? values[i] : "");
        mfi_text_add(&t, ", ");
    }
    mfi_text_add(&t,
                 "\"winner_us\": %.4f, \"default_us\": %.4f, \"seconds\": %.3f, \"complete\": %s, \"candidates\": %s}",
                 r->winner_us, r->default_us, r->seconds, r->complete ? "true" : "false",
                 r->measured && r->measured[0] ? r->measured : "[]");
    return mfi_text_take(&t);
}

bool mfi_tune_look_up(mf_plan *plan, mfi_choice *out)
{
    mfi_tune_key key;
    mfi_tune_record record;
    const char *source;
    memset(out, 0, sizeof *out);
    if (mfi_tune_key_of(&key, plan) != MF_OK || !mfi_tune_find(&key, &record, &source))
        return false;
    bool readable = mfi_choice_parse(out, record.winner);
    if (readable)
        plan->tuning = mfi_tuning_json(&key, &record, source);
    else
        memset(out, 0, sizeof *out);
    mfi_log(MFI_LOG_TUNE, "%s: %s", source, readable ? record.winner : "a record that cannot be read is ignored");
    mfi_tune_record_free(&record);
    return readable;
}

mf_status mf_plan_tuning(char **out, const mf_plan *plan)
{
    *out = NULL;
    MF_REQUIRE(plan, MF_E_INVALID, "mf_plan_tuning: plan is NULL");
    plan = mfi_plan_current(plan);
    if (plan->tuning) {
        *out = mfi_strdup(plan->tuning);
    } else {
        mfi_tune_key key;
        mfi_text title = {0};
        mfi_plan_title(plan, &title);
        MF_TRY(mfi_tune_key_of(&key, plan));
        const mfi_tune_record nothing = {.title = title.data, .complete = false};
        *out = mfi_tuning_json(&key, &nothing, "default");
        mfi_text_free(&title);
    }
    return *out ? MF_OK : MFI_NO_MEMORY(1);
}

void mfi_plan_title(const mf_plan *plan, mfi_text *out)
{
    if (!plan->steps)
        mfi_text_add(out, "nothing to run");
    for (int i = 0; i < plan->steps; i++) {
        mfi_text_add(out, i ? "; " : "");
        mfi_problem_text(plan->step[i].problem, out);
    }
}
