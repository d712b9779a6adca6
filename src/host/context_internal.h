/* Contexts, as the planner sees them. */
#ifndef MFI_CONTEXT_INTERNAL_H
#define MFI_CONTEXT_INTERNAL_H

#include "provider.h"

/* Load the libraries that steps of this kind may use on the context's target, so that caps tells about them. */
void mfi_context_prepare(mf_context *context, mfi_anchor anchor);

/* Changes whenever variants come to mean something else, or kernels become faster: older tuning records then no longer hold. */
enum { MFI_TUNE_GENERATION = 5 };
/* What tuning results hold for: the device; and the libraries that steps with these anchors (bit per mfi_anchor) may use. */
mf_status mfi_context_fingerprint(mf_context *context, char *out, size_t bytes);
void mfi_context_versions(mf_context *context, unsigned anchors, mfi_text *out);

/* The context's plan cache (plan_cache.c); made with the context, emptied before it goes. Cached plans do not keep the
 * context alive: each handle that a user holds does. */
struct mfi_plan_cache;
struct mfi_plan_cache *mfi_context_plans(mf_context *context);
mf_status mfi_plan_cache_new(struct mfi_plan_cache **out);
void mfi_plan_cache_free(struct mfi_plan_cache *cache);

#endif
