/* Matrix products of the CPU's providers against plain loops in double. */
#include "cpu_problem.h"

TestSuite(cpu_matmul, .init = open_context, .fini = close_context);

static const mfi_provider *const providers[] = {&mfi_provider_ref, &mfi_provider_blas};

typedef struct matmul_case {
    mf_dtype a, b, out;
    mfi_ctype acc;
    int batch_dims, layout;
    int64_t batch[2], m, n, k;
    bool share_b; /* the batch repeats b */
    int chain;    /* 0: store; 1: add a bias along n; 2: bias and residual */
} matmul_case;

static number expected(const matmul_case *t, const array *a, const array *b, const array *bias, const array *rest,
                       int64_t i)
{
    int64_t col = i % t->n, row = i / t->n % t->m, item = i / t->n / t->m;
    number sum = 0;
    for (int64_t l = 0; l < t->k; l++)
        sum += get_at(a, (item * t->m + row) * t->k + l) * get_at(b, ((t->share_b ? 0 : item) * t->k + l) * t->n + col);
    return sum + (t->chain > 0 ? get_at(bias, col) : 0) + (t->chain > 1 ? get_at(rest, i) : 0);
}

static double tolerance(const matmul_case *t)
{
    double store = t->out == MF_F16 ? 1e-3 : t->out == MF_BF16 ? 8e-3 : 0;
    double sum = t->acc == MFI_F64 || t->acc == MFI_C128 ? 1e-14 : t->acc == MFI_F32 || t->acc == MFI_C64 ? 5e-7 : 0;
    return store + sum * (4 + sqrt((double)t->k) * 4);
}

static void check(const matmul_case *t, const mfi_provider *provider)
{
    int nd = t->batch_dims + 2;
    int64_t as[4], bs[4], ds[4];
    for (int d = 0; d < t->batch_dims; d++)
        as[d] = bs[d] = ds[d] = t->batch[d];
    as[nd - 2] = ds[nd - 2] = t->m, as[nd - 1] = bs[nd - 2] = t->k, bs[nd - 1] = ds[nd - 1] = t->n;
    array a = array_new(0, t->a, nd, as, t->layout), out = array_new(2, t->out, nd, ds, t->layout);
    array b = t->share_b ? array_new(1, t->b, 2, bs + nd - 2, t->layout) : array_new(1, t->b, nd, bs, t->layout);
    array bias = array_new(3, mfi_ctype_dtype(t->acc), 1, &t->n, t->layout),
          rest = array_new(4, t->out, nd, ds, t->layout);
    array *inputs[] = {&a, &b, &bias, &rest};
    void *slots[] = {a.memory, b.memory, out.memory, bias.memory, rest.memory};
    mfi_problem *p = mfi_calloc(1, sizeof *p);
    p->anchor = MFI_MATMUL;
    p->ndim = nd;
    memcpy(p->shape, ds, sizeof ds);
    p->u.matmul = (mfi_matmul){.m = t->m, .n = t->n, .k = t->k, .a = a.view, .b = b.view, .acc = t->acc};
    if (t->share_b) {
        memset(p->u.matmul.b.strides, 0, sizeof p->u.matmul.b.strides);
        p->u.matmul.b.strides[nd - 2] = b.view.strides[0];
        p->u.matmul.b.strides[nd - 1] = b.view.strides[1];
    }
    add_instr(&p->chain, MFI_ACC, t->acc);
    mfi_view along = {.slot = 3, .dtype = bias.view.dtype, .alignment = 1, .offset = bias.view.offset};
    along.strides[nd - 1] = bias.view.strides[0];
    if (t->chain > 0)
        add_plus(&p->chain, t->acc, &along);
    if (t->chain > 1)
        add_plus(&p->chain, t->acc, &rest.view);
    add_store(&p->chain, t->acc, &out.view);
    for (size_t i = 0; i < MFI_COUNT(inputs); i++) {
        fill_random(inputs[i]);
        keep(inputs[i]);
    }
    keep(&out);
    if (run_problem(provider, p, slots)) {
        for (int64_t i = 0; i<out.count; i += out.count> 100000 ? 31 : 1) {
            number e = expected(t, &a, &b, &bias, &rest, i), v = get_at(&out, i);
            cr_assert(cabs(e - v) <= tolerance(t) * (1 + cabs(e)),
                      "%s %s x %s -> %s, batch %d, %lldx%lldx%lld layout %d chain %d: element %lld is %g, not %g",
                      provider->name, mf_dtype_name(t->a), mf_dtype_name(t->b), mf_dtype_name(t->out), t->batch_dims,
                      (long long)t->m, (long long)t->n, (long long)t->k, t->layout, t->chain, (long long)i, creal(v),
                      creal(e));
        }
        check_kept(&out, false, provider->name);
        for (size_t i = 0; i < MFI_COUNT(inputs); i++)
            check_kept(inputs[i], true, provider->name);
    } else {
        cr_assert(mfi_compute_type(t->a) <= MFI_I64, "%s refused a float matmul", provider->name);
    }
    for (size_t i = 0; i < MFI_COUNT(inputs); i++)
        array_free(inputs[i]);
    array_free(&out);
    mf_free(p);
}

static void check_all(const matmul_case *t)
{
    for (size_t i = 0; i < MFI_COUNT(providers); i++)
        check(t, providers[i]);
}

static const struct {
    mf_dtype a, b, out;
    mfi_ctype acc;
} types[] = {
    {MF_F32, MF_F32, MF_F32, MFI_F32},     {MF_F64, MF_F64, MF_F64, MFI_F64},   {MF_C64, MF_C64, MF_C64, MFI_C64},
    {MF_C128, MF_C128, MF_C128, MFI_C128}, {MF_I32, MF_I32, MF_I32, MFI_I32},   {MF_I64, MF_I64, MF_I64, MFI_I64},
    {MF_F16, MF_F16, MF_F16, MFI_F32},     {MF_BF16, MF_BF16, MF_F32, MFI_F32}, {MF_E4M3, MF_E4M3, MF_BF16, MFI_F32},
    {MF_F32, MF_F64, MF_F64, MFI_F64},     {MF_F16, MF_F32, MF_F32, MFI_F32},   {MF_I8, MF_I8, MF_I32, MFI_I32},
};

Test(cpu_matmul, random_shapes_types_and_layouts)
{
    for (int i = 0; i < 600; i++) {
        size_t type = (size_t)draw((int)MFI_COUNT(types));
        matmul_case t = {.a = types[type].a, .b = types[type].b, .out = types[type].out, .acc = types[type].acc};
        t.batch_dims = draw(3);
        t.layout = draw(2);
        t.batch[0] = 1 + draw(4), t.batch[1] = 1 + draw(3);
        t.m = draw(8) ? 1 + draw(40) : 1, t.n = draw(8) ? 1 + draw(40) : 1, t.k = draw(8) ? 1 + draw(60) : draw(2);
        t.share_b = draw(3) == 0;
        t.chain = draw(3);
        check_all(&t);
    }
}

Test(cpu_matmul, large_products_go_by_panels)
{
    static const matmul_case cases[] = {
        {.m = 300, .n = 4100, .k = 40, .chain = 2},
        {.m = 300, .n = 4100, .k = 40, .chain = 1, .layout = ODD},
        {.m = 300, .n = 90, .k = 80, .batch_dims = 1, .batch = {3}, .chain = 1},
        {.m = 300, .n = 90, .k = 80, .batch_dims = 1, .batch = {3}, .share_b = true},
        {.m = 1, .n = 3000, .k = 130, .chain = 1},
        {.m = 3000, .n = 1, .k = 130},
    };
    for (size_t i = 0; i < MFI_COUNT(cases); i++)
        for (size_t type = 0; type < MFI_COUNT(types); type += 3) {
            matmul_case t = cases[i];
            t.a = types[type].a, t.b = types[type].b, t.out = types[type].out, t.acc = types[type].acc;
            check_all(&t);
        }
}

Test(cpu_matmul, empty_sizes)
{
    for (int zero = 0; zero < 4; zero++) {
        matmul_case t = {.a = MF_F32, .b = MF_F32, .out = MF_F32, .acc = MFI_F32, .batch_dims = 1, .batch = {2}};
        t.m = zero == 0 ? 0 : 3, t.n = zero == 1 ? 0 : 5, t.k = zero == 2 ? 0 : 4;
        t.batch[0] = zero == 3 ? 0 : 2;
        t.chain = 1;
        check_all(&t);
    }
}

/* Sum over n as a row value, and over m and n together. */
Test(cpu_matmul, reductions_in_the_chain)
{
    for (int nreduce = 1; nreduce <= 2; nreduce++)
        for (int large = 0; large < 2; large++) {
            int64_t shape[] = {3, large ? 90 : 6, large ? 80 : 5}, k = large ? 70 : 4;
            array a = array_new(0, MF_F32, 3, (int64_t[]){3, shape[1], k}, ODD);
            array b = array_new(1, MF_F32, 3, (int64_t[]){3, k, shape[2]}, PLAIN);
            array out = array_new(2, MF_F32, 3 - nreduce, shape, PLAIN);
            void *slots[] = {a.memory, b.memory, out.memory};
            fill_random(&a);
            fill_random(&b);
            mfi_problem *p = mfi_calloc(1, sizeof *p);
            p->anchor = MFI_MATMUL;
            p->ndim = 3;
            p->nreduce = nreduce;
            memcpy(p->shape, shape, sizeof shape);
            p->u.matmul = (mfi_matmul){.m = shape[1], .n = shape[2], .k = k, .a = a.view, .b = b.view, .acc = MFI_F32};
            p->chain.phases = 1;
            add_instr(&p->chain, MFI_ACC, MFI_F32);
            mfi_instr *sum = add_instr(&p->chain, MFI_REDUCE, MFI_F32);
            sum->a = 0;
            sum->reduce = MF_SUM;
            sum->level = 1;
            add_store(&p->chain, MFI_F32, &out.view);
            p->chain.instr[p->chain.count - 1].level = 1;
            for (size_t i = 0; i < MFI_COUNT(providers); i++) {
                cr_assert(run_problem(providers[i], p, slots));
                for (int64_t row = 0; row < out.count; row++) {
                    int64_t points = shape[2] * (nreduce == 2 ? shape[1] : 1);
                    matmul_case t = {.m = shape[1], .n = shape[2], .k = k};
                    double e = 0;
                    for (int64_t j = 0; j < points; j++)
                        e += creal(expected(&t, &a, &b, NULL, NULL, row * points + j));
                    cr_assert_float_eq(creal(get_at(&out, row)), e, 1e-3 * (1 + fabs(e)));
                }
            }
            array_free(&a);
            array_free(&b);
            array_free(&out);
            mf_free(p);
        }
}

Test(cpu_matmul, what_the_output_holds_is_never_read)
{
    array a = array_new(0, MF_F32, 2, (int64_t[]){70, 70}, PLAIN), b = array_new(1, MF_F32, 1, (int64_t[]){70}, PLAIN);
    array out = array_new(2, MF_F32, 1, (int64_t[]){70}, PLAIN);
    void *slots[] = {a.memory, b.memory, out.memory};
    fill_random(&a);
    fill_random(&b);
    mfi_problem p = {.anchor = MFI_MATMUL, .ndim = 2, .shape = {70, 1}};
    p.u.matmul = (mfi_matmul){.m = 70, .n = 1, .k = 70, .a = a.view, .b = b.view, .acc = MFI_F32};
    p.u.matmul.b.strides[1] = 1;
    add_instr(&p.chain, MFI_ACC, MFI_F32);
    mfi_view store = out.view;
    store.strides[1] = 1;
    add_store(&p.chain, MFI_F32, &store);
    for (size_t i = 0; i < MFI_COUNT(providers); i++) {
        for (int64_t j = 0; j < 70; j++)
            set_at(&out, j, NAN);
        cr_assert(run_problem(providers[i], &p, slots));
        for (int64_t j = 0; j < 70; j++)
            cr_assert(isfinite(creal(get_at(&out, j))), "%s read its output", providers[i]->name);
    }
    array_free(&a);
    array_free(&b);
    array_free(&out);
}
