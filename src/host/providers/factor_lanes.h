/* What solve_lanes.c and factor_lanes.c share: where the matrices of a group are. */
#ifndef MFI_FACTOR_LANES_H
#define MFI_FACTOR_LANES_H

#include "factor_cpu.h"
#include "solve_lanes.h"

/* Where `count` items from `first` on are, without a division for each. */
void mfi_lanes_locate(mfi_lane_matrices *out, const mfi_solve_view *v, void *const *slots, int64_t first, int count);
/* Lanes without an item have the last one's. */
void mfi_lanes_repeat_last(mfi_lane_matrices *m);

/* A FACTOR step's state begins with its problem, as that of a SOLVE step does. */
bool mfi_lanes_factor_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
mf_status mfi_lanes_factor_prepare(void **state, const mfi_problem *p, const mfi_caps *c);
mf_status mfi_lanes_factor_run(void *state, const mfi_run *run);

/* The table of the best instruction set, as cpu_isa.c finds it. */
const mfi_lane_functions *mfi_lane_functions_of(mfi_ctype type);
/* Microseconds of a group on one core. */
double mfi_lanes_group_us(mfi_solver solver, int64_t order, int64_t sides);

#endif
