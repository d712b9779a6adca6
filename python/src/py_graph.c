/* mathfuse._core.Graph: the builders of graph.h by name. Nodes are Python integers. */
#include "py_core.h"

#define GRAPH(self) (((mfpy_graph *)(self))->graph)
#define METHOD_ARGS PyObject *self, PyTypeObject *defining, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames

/* The node as an int, or the graph's latched error. */
static PyObject *node_result(PyObject *self, PyTypeObject *defining, mf_node node)
{
    mf_status status = node.id < 0 ? mf_graph_error(GRAPH(self)) : MF_OK;
    if (status != MF_OK)
        return mfpy_raise(mfpy_state_of(defining), status);
    return PyLong_FromLong(node.id);
}

static int dtype_from_name(PyTypeObject *defining, const char *name, mf_dtype *out)
{
    mf_status status = mf_dtype_parse(out, name);
    if (status == MF_OK)
        return 0;
    mfpy_raise(mfpy_state_of(defining), status);
    return -1;
}

/* The position of `name` in a NULL-terminated list, or -1 with an exception. */
static int choice(PyTypeObject *defining, const char *what, const char *name, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name))
            return i;
    PyObject *list = PyUnicode_FromString("");
    for (int i = 0; list && names[i]; i++) {
        PyObject *longer = PyUnicode_FromFormat("%U%s\"%s\"", list, i ? ", " : "", names[i]);
        Py_DECREF(list);
        list = longer;
    }
    if (list)
        mfpy_fail(mfpy_state_of(defining), MF_E_INVALID, "%s \"%s\" is not known; it is one of %U", what, name, list);
    Py_XDECREF(list);
    return -1;
}

static PyObject *graph_input(METHOD_ARGS)
{
    const char *name = NULL;
    mfpy_ints shape;
    mf_dtype dtype;
    const mfpy_param params[] = {
        {.name = "dtype", .kind = 's', .out = &name}, {.name = "shape", .kind = 'n', .out = &shape}, {0}};
    if (mfpy_parse("input", args, nargs, kwnames, params) < 0 || dtype_from_name(defining, name, &dtype) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_input(GRAPH(self), dtype, shape.count, shape.values));
}

static PyObject *graph_constant(METHOD_ARGS)
{
    const char *name = NULL;
    double re = 0, im = 0;
    mf_dtype dtype;
    const mfpy_param params[] = {{.name = "dtype", .kind = 's', .out = &name},
                                 {.name = "re", .kind = 'd', .out = &re},
                                 {.name = "im", .kind = 'd', .out = &im, .optional = true},
                                 {0}};
    if (mfpy_parse("constant", args, nargs, kwnames, params) < 0 || dtype_from_name(defining, name, &dtype) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_constant(GRAPH(self), dtype, re, im));
}

static PyObject *graph_number(METHOD_ARGS)
{
    static const char *const kinds[] = {"int", "float", "complex", NULL};
    const char *name = NULL;
    double re = 0, im = 0;
    const mfpy_param params[] = {{.name = "kind", .kind = 's', .out = &name},
                                 {.name = "re", .kind = 'd', .out = &re},
                                 {.name = "im", .kind = 'd', .out = &im, .optional = true},
                                 {0}};
    int kind;
    if (mfpy_parse("number", args, nargs, kwnames, params) < 0 || (kind = choice(defining, "kind", name, kinds)) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_number(GRAPH(self), (mf_weak_kind)kind, re, im));
}

static PyObject *graph_arange(METHOD_ARGS)
{
    mfpy_ints shape;
    const mfpy_param params[] = {{.name = "shape", .kind = 'n', .out = &shape}, {0}};
    if (mfpy_parse("arange", args, nargs, kwnames, params) < 0)
        return NULL;
    if (shape.count != 1) {
        PyErr_SetString(PyExc_ValueError, "an arange has one dimension");
        return NULL;
    }
    return node_result(self, defining, mf_graph_arange(GRAPH(self), shape.values[0]));
}

static PyObject *graph_op(METHOD_ARGS)
{
    if (nargs < 1 || nargs > 4 || kwnames || !PyUnicode_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "op() takes the name of an operation and one to three nodes");
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8AndSize(args[0], NULL);
    mf_op op;
    mf_status status = name ? mf_op_parse(&op, name) : MF_E_INVALID;
    if (status != MF_OK)
        return name ? mfpy_raise(mfpy_state_of(defining), status) : NULL;
    mf_node nodes[3];
    for (Py_ssize_t i = 1; i < nargs; i++) {
        nodes[i - 1].id = (int32_t)PyLong_AsLong(args[i]);
        if (nodes[i - 1].id == -1 && PyErr_Occurred())
            return NULL;
    }
    return node_result(self, defining, mf_graph_op(GRAPH(self), op, (int)nargs - 1, nodes));
}

static PyObject *graph_cast(METHOD_ARGS)
{
    mf_node x = MF_NODE_NONE;
    const char *name = NULL;
    int saturate = 0;
    mf_dtype dtype;
    const mfpy_param params[] = {{.name = "x", .kind = 'i', .out = &x.id},
                                 {.name = "dtype", .kind = 's', .out = &name},
                                 {.name = "saturate", .kind = 'p', .out = &saturate, .optional = true},
                                 {0}};
    if (mfpy_parse("cast", args, nargs, kwnames, params) < 0 || dtype_from_name(defining, name, &dtype) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_cast(GRAPH(self), x, dtype, saturate ? MF_CAST_SATURATE : 0));
}

static void to_int_list(const mfpy_ints *from, int *to)
{
    for (int i = 0; i < from->count; i++)
        to[i] = (int)from->values[i];
}

static PyObject *graph_reduce(METHOD_ARGS)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "mean", "any", "all", NULL};
    const char *name = NULL;
    mf_node x = MF_NODE_NONE;
    mfpy_ints axes = {-1, {0}};
    int keepdims = 0, list[MF_MAX_DIMS], op;
    const mfpy_param params[] = {{.name = "op", .kind = 's', .out = &name},
                                 {.name = "x", .kind = 'i', .out = &x.id},
                                 {.name = "axes", .kind = 'n', .out = &axes, .optional = true},
                                 {.name = "keepdims", .kind = 'p', .out = &keepdims, .optional = true},
                                 {0}};
    if (mfpy_parse("reduce", args, nargs, kwnames, params) < 0 || (op = choice(defining, "op", name, names)) < 0)
        return NULL;
    to_int_list(&axes, list);
    return node_result(self, defining,
                       mf_graph_reduce(GRAPH(self), (mf_reduce_op)op, x, axes.count < 0 ? 0 : axes.count,
                                       axes.count < 0 ? NULL : list, keepdims));
}

static PyObject *graph_matmul(METHOD_ARGS)
{
    static const char *const names[] = {"default", "tf32", NULL};
    const char *name = "default";
    mf_node a = MF_NODE_NONE, b = MF_NODE_NONE;
    int compute;
    const mfpy_param params[] = {{.name = "a", .kind = 'i', .out = &a.id},
                                 {.name = "b", .kind = 'i', .out = &b.id},
                                 {.name = "compute", .kind = 's', .out = &name, .optional = true},
                                 {0}};
    if (mfpy_parse("matmul", args, nargs, kwnames, params) < 0 ||
        (compute = choice(defining, "compute", name, names)) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_matmul_ex(GRAPH(self), a, b, (mf_compute)compute));
}

static PyObject *graph_fft(METHOD_ARGS)
{
    static const char *const kinds[] = {"fft", "ifft", "rfft", "irfft", NULL};
    static const char *const norms[] = {"backward", "ortho", "forward", NULL};
    const char *kind_name = NULL, *norm_name = "backward";
    mf_node x = MF_NODE_NONE;
    mfpy_ints axes, n;
    int kind, norm, list[MF_MAX_DIMS];
    const mfpy_param params[] = {{.name = "kind", .kind = 's', .out = &kind_name},
                                 {.name = "x", .kind = 'i', .out = &x.id},
                                 {.name = "axes", .kind = 'n', .out = &axes},
                                 {.name = "n", .kind = 'n', .out = &n},
                                 {.name = "norm", .kind = 's', .out = &norm_name, .optional = true},
                                 {0}};
    if (mfpy_parse("fft", args, nargs, kwnames, params) < 0 ||
        (kind = choice(defining, "kind", kind_name, kinds)) < 0 ||
        (norm = choice(defining, "norm", norm_name, norms)) < 0)
        return NULL;
    if (axes.count < 1 || axes.count != n.count) {
        PyErr_SetString(PyExc_ValueError, "axes and n must have the same number of entries, at least one");
        return NULL;
    }
    to_int_list(&axes, list);
    return node_result(self, defining,
                       mf_graph_fft(GRAPH(self), (mf_fft_kind)kind, x, axes.count, list, n.values, (mf_fft_norm)norm));
}

static PyObject *graph_solver(METHOD_ARGS)
{
    static const char *const kinds[] = {"cholesky", "solve", "cho_solve", "solve_triangular", NULL};
    const char *name = NULL;
    mf_node a = MF_NODE_NONE, b = MF_NODE_NONE;
    int flags = 0;
    const mfpy_param params[] = {{.name = "kind", .kind = 's', .out = &name},
                                 {.name = "a", .kind = 'i', .out = &a.id},
                                 {.name = "b", .kind = 'i', .out = &b.id, .optional = true},
                                 {.name = "flags", .kind = 'i', .out = &flags, .optional = true},
                                 {0}};
    if (mfpy_parse("solver", args, nargs, kwnames, params) < 0)
        return NULL;
    switch (choice(defining, "kind", name, kinds)) {
    case 0:
        return node_result(self, defining, mf_graph_cholesky(GRAPH(self), a, flags));
    case 1:
        return node_result(self, defining, mf_graph_solve(GRAPH(self), a, b));
    case 2:
        return node_result(self, defining, mf_graph_cho_solve(GRAPH(self), a, b, flags));
    case 3:
        return node_result(self, defining, mf_graph_solve_triangular(GRAPH(self), a, b, flags));
    default:
        return NULL;
    }
}

/* Decompositions: kind, operands, flags, rcond. */
static PyObject *graph_factor(METHOD_ARGS)
{
    static const char *const kinds[] = {
        "lu_factor",       "lu_solve",          "inv", "qr", "eigh", "svd", "eig", "lstsq",
        "solve_symmetric", "solve_tridiagonal", NULL};
    const char *name = NULL;
    mfpy_ints operands;
    int flags = 0;
    double rcond = -1;
    const mfpy_param params[] = {{.name = "kind", .kind = 's', .out = &name},
                                 {.name = "operands", .kind = 'n', .out = &operands},
                                 {.name = "flags", .kind = 'i', .out = &flags, .optional = true},
                                 {.name = "rcond", .kind = 'd', .out = &rcond, .optional = true},
                                 {0}};
    if (mfpy_parse("factor", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_node x[3] = {MF_NODE_NONE, MF_NODE_NONE, MF_NODE_NONE};
    for (int i = 0; i < operands.count && i < 3; i++)
        x[i].id = (int)operands.values[i];
    mf_graph *g = GRAPH(self);
    switch (choice(defining, "kind", name, kinds)) {
    case 0:
        return node_result(self, defining, mf_graph_lu_factor(g, x[0]));
    case 1:
        return node_result(self, defining, mf_graph_lu_solve(g, x[0], x[1], x[2], flags));
    case 2:
        return node_result(self, defining, mf_graph_inv(g, x[0]));
    case 3:
        return node_result(self, defining, mf_graph_qr(g, x[0], flags));
    case 4:
        return node_result(self, defining, mf_graph_eigh(g, x[0], flags));
    case 5:
        return node_result(self, defining, mf_graph_svd(g, x[0], flags));
    case 6:
        return node_result(self, defining, mf_graph_eig(g, x[0]));
    case 7:
        return node_result(self, defining, mf_graph_lstsq(g, x[0], x[1], rcond));
    case 8:
        return node_result(self, defining, mf_graph_solve_symmetric(g, x[0], x[1], flags));
    case 9:
        return node_result(self, defining, mf_graph_solve_tridiagonal(g, x[0], x[1]));
    default:
        return NULL;
    }
}

static PyObject *graph_result(METHOD_ARGS)
{
    mf_node x = MF_NODE_NONE;
    int index = 0;
    const mfpy_param params[] = {
        {.name = "solver", .kind = 'i', .out = &x.id}, {.name = "index", .kind = 'i', .out = &index}, {0}};
    if (mfpy_parse("result", args, nargs, kwnames, params) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_result(GRAPH(self), x, index));
}

/* The shape of a node; -1 with an exception for a node that is none. */
static int rank_of(PyObject *self, PyTypeObject *defining, mf_node x)
{
    mf_dtype dtype;
    int ndim;
    int64_t shape[MF_MAX_DIMS];
    mf_status status = mf_graph_describe(GRAPH(self), x, &dtype, &ndim, shape);
    if (status == MF_OK)
        return ndim;
    mfpy_raise(mfpy_state_of(defining), status);
    return -1;
}

static int check_count(const char *what, const mfpy_ints *list, int rank)
{
    if (list->count == rank)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s has %d entries; the array has %d dimensions", what, list->count, rank);
    return -1;
}

static PyObject *graph_transpose(METHOD_ARGS)
{
    mf_node x = MF_NODE_NONE;
    mfpy_ints order;
    int list[MF_MAX_DIMS];
    const mfpy_param params[] = {
        {.name = "x", .kind = 'i', .out = &x.id}, {.name = "order", .kind = 'n', .out = &order}, {0}};
    if (mfpy_parse("transpose", args, nargs, kwnames, params) < 0)
        return NULL;
    int rank = rank_of(self, defining, x);
    if (rank < 0 || check_count("order", &order, rank) < 0)
        return NULL;
    to_int_list(&order, list);
    return node_result(self, defining, mf_graph_transpose(GRAPH(self), x, list));
}

static PyObject *shaped(METHOD_ARGS, const char *name, mf_node (*build)(mf_graph *, mf_node, int, const int64_t *))
{
    mf_node x = MF_NODE_NONE;
    mfpy_ints shape;
    const mfpy_param params[] = {
        {.name = "x", .kind = 'i', .out = &x.id}, {.name = "shape", .kind = 'n', .out = &shape}, {0}};
    if (mfpy_parse(name, args, nargs, kwnames, params) < 0)
        return NULL;
    return node_result(self, defining, build(GRAPH(self), x, shape.count, shape.values));
}

static PyObject *graph_reshape(METHOD_ARGS)
{
    return shaped(self, defining, args, nargs, kwnames, "reshape", mf_graph_reshape);
}

static PyObject *graph_broadcast(METHOD_ARGS)
{
    return shaped(self, defining, args, nargs, kwnames, "broadcast", mf_graph_broadcast);
}

static PyObject *graph_slice(METHOD_ARGS)
{
    mf_node x = MF_NODE_NONE;
    mfpy_ints start, length, step;
    const mfpy_param params[] = {{.name = "x", .kind = 'i', .out = &x.id},
                                 {.name = "start", .kind = 'n', .out = &start},
                                 {.name = "length", .kind = 'n', .out = &length},
                                 {.name = "step", .kind = 'n', .out = &step},
                                 {0}};
    if (mfpy_parse("slice", args, nargs, kwnames, params) < 0)
        return NULL;
    int rank = rank_of(self, defining, x);
    if (rank < 0 || check_count("start", &start, rank) < 0 || check_count("length", &length, rank) < 0 ||
        check_count("step", &step, rank) < 0)
        return NULL;
    return node_result(self, defining, mf_graph_slice(GRAPH(self), x, start.values, length.values, step.values));
}

static PyObject *graph_output(METHOD_ARGS)
{
    mf_node x = MF_NODE_NONE;
    const mfpy_param params[] = {{.name = "x", .kind = 'i', .out = &x.id}, {0}};
    if (mfpy_parse("output", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_status status = mf_graph_output(GRAPH(self), x);
    if (status != MF_OK)
        return mfpy_raise(mfpy_state_of(defining), status);
    Py_RETURN_NONE;
}

static PyObject *graph_describe(METHOD_ARGS)
{
    mf_node x = MF_NODE_NONE;
    mf_dtype dtype;
    int ndim;
    int64_t shape[MF_MAX_DIMS];
    const mfpy_param params[] = {{.name = "x", .kind = 'i', .out = &x.id}, {0}};
    if (mfpy_parse("describe", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_status status = mf_graph_describe(GRAPH(self), x, &dtype, &ndim, shape);
    if (status != MF_OK)
        return mfpy_raise(mfpy_state_of(defining), status);
    PyObject *extents = mfpy_ints_tuple(ndim, shape);
    return extents ? Py_BuildValue("sN", mf_dtype_name(dtype), extents) : NULL;
}

static int tune_policy(const char *name, int *out)
{
    static const char *const names[] = {[MF_TUNE_OFF] = "off",
                                        [MF_TUNE_CACHED] = "cached",
                                        [MF_TUNE_MEASURE] = "measure",
                                        [MF_TUNE_REQUIRE] = "require"};
    *out = MF_TUNE_DEFAULT;
    for (int i = MF_TUNE_OFF; name && i <= MF_TUNE_REQUIRE; i++)
        if (!strcmp(names[i], name)) {
            *out = i;
            return 0;
        }
    if (!name)
        return 0;
    PyErr_Format(PyExc_ValueError, "tune must be \"off\", \"cached\", \"measure\" or \"require\", not \"%s\"", name);
    return -1;
}

static PyObject *graph_plan(METHOD_ARGS)
{
    mfpy_state *state = mfpy_state_of(defining);
    mfpy_plan_request request = {.graph = self};
    PyObject *finish = Py_None, *captured = NULL, *bindings = Py_None;
    const char *tune = NULL;
    const mfpy_param params[] = {{.name = "context", .kind = 'O', .out = &request.context},
                                 {.name = "finish", .kind = 'O', .out = &finish, .optional = true},
                                 {.name = "captured", .kind = 'O', .out = &captured, .optional = true},
                                 {.name = "flags", .kind = 'i', .out = &request.flags, .optional = true},
                                 {.name = "providers", .kind = 's', .out = &request.providers, .optional = true},
                                 {.name = "bindings", .kind = 'O', .out = &bindings, .optional = true},
                                 {.name = "tune", .kind = 's', .out = &tune, .optional = true},
                                 {0}};
    if (mfpy_parse("plan", args, nargs, kwnames, params) < 0)
        return NULL;
    if (Py_TYPE(request.context) != state->context_type || (captured && !PyTuple_Check(captured)) ||
        (bindings != Py_None && !PyTuple_Check(bindings))) {
        PyErr_SetString(PyExc_TypeError, "plan() takes a Context, and tuples of arrays");
        return NULL;
    }
    if (tune_policy(tune, &request.tune) < 0)
        return NULL;
    request.finish = finish == Py_None ? NULL : finish;
    request.captured = captured;
    mfpy_arrays examples;
    mfpy_arrays_init(&examples);
    request.bindings = bindings == Py_None ? NULL : &examples;
    PyObject *plan = NULL;
    if (mfpy_add_tuple(state, bindings == Py_None ? NULL : bindings, &examples, -1) == 0)
        plan = mfpy_plan_create(state, &request);
    mfpy_arrays_clear(&examples);
    return plan;
}

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return NULL;
    mfpy_graph *self = PyObject_GC_New(mfpy_graph, type);
    if (!self)
        return NULL;
    mf_status status = mf_graph_new(&self->graph);
    PyObject_GC_Track(self);
    if (status != MF_OK) {
        Py_DECREF(self);
        return mfpy_raise(mfpy_state_of(type), status);
    }
    return (PyObject *)self;
}

static int graph_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void graph_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    mf_graph_free(GRAPH(self));
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

#define METHOD(name, signature)                                                                                        \
    {                                                                                                                  \
#name, (PyCFunction)(void (*)(void))graph_##name, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,                 \
            #name "($self, " signature ")\n--\n\n"                                                                     \
    }

static PyMethodDef graph_methods[] = {
    METHOD(input, "dtype, shape"),
    METHOD(constant, "dtype, re, im=0.0"),
    METHOD(number, "kind, re, im=0.0"),
    METHOD(arange, "shape"),
    METHOD(op, "name, /, *nodes"),
    METHOD(cast, "x, dtype, saturate=False"),
    METHOD(reduce, "op, x, axes=None, keepdims=False"),
    METHOD(matmul, "a, b, compute='default'"),
    METHOD(fft, "kind, x, axes, n, norm='backward'"),
    METHOD(solver, "kind, a, b=-1, flags=0"),
    METHOD(factor, "kind, operands, flags=0, rcond=-1.0"),
    METHOD(result, "solver, index"),
    METHOD(transpose, "x, order"),
    METHOD(reshape, "x, shape"),
    METHOD(broadcast, "x, shape"),
    METHOD(slice, "x, start, length, step"),
    METHOD(output, "x"),
    METHOD(describe, "x"),
    METHOD(plan, "context, finish=None, captured=(), flags=0, providers=None, bindings=None, tune=None"),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, "Graph()\n--\n\nA description of a computation, built node by node."},
    {Py_tp_new, graph_new},
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_traverse, graph_traverse},
    {Py_tp_methods, graph_methods},
    {0, NULL},
};

PyType_Spec mfpy_graph_spec = {
    .name = "mathfuse._core.Graph",
    .basicsize = sizeof(mfpy_graph),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = graph_slots,
};
