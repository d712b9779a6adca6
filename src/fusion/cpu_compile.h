/* What the two files that compile CPU chains share: cpu_layout.c looks at the chain, cpu_compile.c writes the program. */
#ifndef MFI_CPU_COMPILE_H
#define MFI_CPU_COMPILE_H

#include "cpu_program.h"

typedef enum mfi_value_class { MFI_UNIFORM, MFI_ROW, MFI_ELEMENT } mfi_value_class;

typedef struct mfi_compiler {
    const mfi_problem *p;
    const mfi_loops *loops;
    mfi_cpu_chain *out;
    int row_dims;           /* of the domain; MAP: all are element dims */
    int order[MF_MAX_DIMS]; /* domain dims in the order that elements are visited in */
    mfi_value_class class[MFI_MAX_INSTR];
    int ready[MFI_MAX_INSTR]; /* phases that must have run */
    bool needed[MFI_MAX_INSTR];
    int16_t reduce_of[MFI_MAX_INSTR];
    int16_t repeated[MFI_MAX_INSTR]; /* in the list being made: value with the row value repeated, -1 */
    int32_t uniform_at, row_at;      /* uniform bytes; row bytes per row of a group */
    int32_t element_at;              /* element bytes per element of a block */
    bool register_free[MFI_MAX_VALUES];
    int registers;
    int32_t kept_size; /* bytes of kept values per element of a group */
    struct {
        int32_t at;
        int size;
    } reg[MFI_MAX_VALUES];
    int16_t register_of[MFI_MAX_VALUES];
} mfi_compiler;

static inline const mfi_instr *mfi_instr_of(const mfi_compiler *c, int i)
{
    return &c->p->chain.instr[i];
}

/* The values that an instruction reads; returns how many. */
int mfi_instr_operands(const mfi_instr *in, int16_t *values);
mfi_value_class mfi_load_class(const mfi_compiler *c, const mfi_operand *o);
void mfi_classify(mfi_compiler *c);      /* class, ready, needed; the number of phases */
void mfi_choose_layout(mfi_compiler *c); /* rows, their length, layout, order, chunks */

#endif
