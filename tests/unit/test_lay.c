/* A temporary laid out for its reader: the product stores each element where the transform then reads it. */
#include <criterion/criterion.h>

#include "schedule.h"

enum { MODES = 5, BATCH = 3, OUT = 7, IN = 4, N = 16, ALL = MODES * BATCH * OUT };

/* The product of modes, its result read by a transform along `axis` of (modes, batch, out) transposed by `order`. */
static mfi_schedule *schedule_of(const int *order, int axis)
{
    mf_graph *g;
    mfi_schedule *s;
    mf_tensor t[3];
    const int64_t a[3] = {MODES, BATCH, IN}, b[3] = {MODES, IN, OUT}, n = N;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    mf_node x = mf_graph_input(g, MF_C64, 3, a), w = mf_graph_input(g, MF_C64, 3, b);
    mf_node y = mf_graph_fft(g, MF_IRFFT, mf_graph_transpose(g, mf_graph_matmul(g, x, w), order), 1, &axis, &n,
                             MF_NORM_BACKWARD);
    mf_graph_output(g, y);
    cr_assert_eq(mf_graph_error(g), MF_OK);
    mf_tensor_init(&t[0], NULL, MF_C64, 3, a);
    mf_tensor_init(&t[1], NULL, MF_C64, 3, b);
    mf_tensor_init(&t[2], NULL, MF_F32, 3, g->node[y.id].shape);
    cr_assert_eq(mfi_schedule_new(&s, g, t, 0), MF_OK, "%s", mf_error_message(MF_E_INVALID));
    mf_graph_free(g);
    return s;
}

/* Where the view has each point of the box, in order. */
static void places(int64_t *out, const mfi_view *v, int ndim, const int64_t *shape)
{
    for (int64_t i = 0; i < ALL; i++) {
        int64_t rest = i;
        out[i] = v->offset;
        for (int d = ndim - 1; d >= 0; d--) {
            out[i] += rest % shape[d] * v->strides[d];
            rest /= shape[d];
        }
    }
}

static void both(int64_t *stored, int64_t *read, const mfi_schedule *s, const mfi_laid *l, int reader)
{
    const mfi_problem *p = s->step[reader], *w = s->step[l->writer];
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, p->shape, sizeof shape);
    shape[p->ndim - 1] = p->u.fft.in_extent[0];
    places(stored, l->stored, w->ndim, w->shape);
    places(read, l->read, p->ndim, shape);
}

static void check(const int *order, int axis)
{
    mfi_schedule *s = schedule_of(order, axis);
    mfi_laid l;
    int64_t stored[2][ALL], read[2][ALL], moved[ALL];
    int reader = s->steps - 1;
    cr_assert(mfi_lay_along(&l, s, reader));
    both(stored[0], read[0], s, &l, reader);
    mfi_lay(&l);
    both(stored[1], read[1], s, &l, reader);
    memset(moved, -1, sizeof moved);
    for (int i = 0; i < ALL; i++) {
        cr_assert(stored[1][i] >= 0 && stored[1][i] < ALL);
        moved[stored[0][i]] = stored[1][i];
    }
    for (int i = 0; i < ALL; i++)
        cr_assert_eq(read[1][i], moved[read[0][i]], "point %d", i);
    cr_expect_eq(l.read->strides[s->step[reader]->ndim - 1], 1);
    mfi_laid again;
    cr_expect(!mfi_lay_along(&again, s, reader));
    mfi_lay(&l);
    both(stored[1], read[1], s, &l, reader);
    cr_expect_arr_eq(stored[0], stored[1], sizeof *stored);
    cr_expect_arr_eq(read[0], read[1], sizeof *read);
    mfi_schedule_free(s);
}

Test(lay, along_the_axis)
{
    check((const int[]){1, 2, 0}, 2); /* the modes last */
    check((const int[]){2, 1, 0}, 2);
    check((const int[]){1, 0, 2}, 1);
    check((const int[]){0, 2, 1}, 2); /* a batch last */
}

Test(lay, as_it_is)
{
    mfi_laid l;
    mfi_schedule *s = schedule_of((const int[]){0, 1, 2}, 2);
    cr_expect(!mfi_lay_along(&l, s, s->steps - 1));
    mfi_schedule_free(s);
}
