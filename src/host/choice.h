/* What a plan does, as far as it could do otherwise: how the graph is cut into steps, and who runs each. Tuning finds one,
 * the database keeps it as text. */
#ifndef MFI_CHOICE_H
#define MFI_CHOICE_H

#include "provider.h"

typedef enum mfi_grouping {
    MFI_GROUP_BY_COST,  /* as the estimates say */
    MFI_GROUP_APART,    /* chains cut from their anchors, transforms not paired */
    MFI_GROUP_TOGETHER, /* whatever one provider can run in one */
    MFI_GROUPINGS
} mfi_grouping;

enum { MFI_MAX_CHOICES = 32 }; /* steps of a plan that can be tuned */

typedef struct mfi_step_choice {
    const mfi_provider *provider; /* NULL: the cheapest by estimate, its own pick */
    int variant;
    char identity[MFI_IDENTITY_BYTES]; /* as the provider called it; "" is not checked */
} mfi_step_choice;

typedef struct mfi_choice {
    mfi_grouping grouping;
    int steps; /* of the plan; 0: not known, none is chosen for */
    mfi_step_choice step[MFI_MAX_CHOICES];
} mfi_choice;

/* "by_cost; cublaslt/3/algorithm 66, tile 20; generated/0/". The caller frees the text. */
void mfi_choice_text(const mfi_choice *choice, mfi_text *out);
/* False: not such a text, or it names a provider that there is not. */
bool mfi_choice_parse(mfi_choice *out, const char *text);

#endif
