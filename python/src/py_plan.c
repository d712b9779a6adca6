/* mathfuse._core.Plan: making one from a graph, what it knows, and running it. */
#include "py_core.h"

#define PLAN(self) ((mfpy_plan *)(self))

/* ---- making ---- */

static int fill_outputs(mfpy_state *state, mfpy_plan *self, const mf_graph *graph)
{
    int count = mf_graph_outputs(graph);
    self->output = PyMem_Calloc((size_t)count + 1, sizeof *self->output);
    if (!self->output) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < count; i++) {
        mfpy_output *o = &self->output[i];
        mf_node node;
        mf_status status = mf_graph_output_node(graph, i, &node);
        if (status == MF_OK)
            status = mf_graph_describe(graph, node, &o->dtype, &o->ndim, o->shape);
        if (status != MF_OK) {
            mfpy_raise(state, status);
            return -1;
        }
        o->shape_tuple = mfpy_ints_tuple(o->ndim, o->shape);
        if (!o->shape_tuple)
            return -1;
        self->outputs = i + 1;
    }
    self->inputs = mf_graph_inputs(graph);
    return 0;
}

static mf_status make_plan(const mfpy_plan_request *request, const mf_tensor *bindings, mf_plan **out)
{
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    options.flags = request->flags;
    options.providers = request->providers;
    options.tune = (mf_tune_policy)request->tune;
    options.bindings = bindings;
    options.binding_count = bindings ? request->bindings->count : 0;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_plan_cached(out, ((mfpy_context *)request->context)->context,
                                                   ((mfpy_graph *)request->graph)->graph, &options);
    Py_END_ALLOW_THREADS return status;
}

PyObject *mfpy_plan_create(mfpy_state *state, const mfpy_plan_request *request)
{
    mfpy_plan *self = PyObject_GC_New(mfpy_plan, state->plan_type);
    if (!self)
        return NULL;
    self->plan = NULL;
    self->context = Py_NewRef(request->context);
    self->finish = Py_XNewRef(request->finish);
    self->captured = Py_XNewRef(request->captured);
    self->inputs = self->outputs = 0;
    self->output = NULL;
    PyObject_GC_Track(self);
    int count = request->bindings ? request->bindings->count : 0;
    mf_tensor *bindings = count ? PyMem_Malloc((size_t)count * sizeof *bindings) : NULL;
    for (int i = 0; bindings && i < count; i++)
        bindings[i] = request->bindings->items[i].tensor;
    mf_status status = make_plan(request, bindings, &self->plan);
    if (status != MF_OK)
        mfpy_raise(state, status);
    PyMem_Free(bindings);
    if (status != MF_OK || fill_outputs(state, self, ((mfpy_graph *)request->graph)->graph) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int plan_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(PLAN(self)->context);
    Py_VISIT(PLAN(self)->finish);
    Py_VISIT(PLAN(self)->captured);
    return 0;
}

static int plan_clear(PyObject *self)
{
    Py_CLEAR(PLAN(self)->finish);
    Py_CLEAR(PLAN(self)->captured);
    return 0;
}

static void plan_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    plan_clear(self);
    for (int i = 0; i < PLAN(self)->outputs; i++)
        Py_XDECREF(PLAN(self)->output[i].shape_tuple);
    PyMem_Free(PLAN(self)->output);
    mf_plan_free(PLAN(self)->plan);
    Py_CLEAR(PLAN(self)->context);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- running ---- */

static PyObject *argument_name(const mfpy_array *array, PyObject *function)
{
    if (array->keyword)
        return PyUnicode_FromFormat("argument %R", array->keyword);
    if (array->position < 0)
        return PyUnicode_FromString("an array captured by the function");
    PyObject *code = function ? PyObject_GetAttrString(function, "__code__") : NULL;
    PyObject *names = code ? PyObject_GetAttrString(code, "co_varnames") : NULL;
    PyObject *name = names && PyTuple_Check(names) ? PyTuple_GetItem(names, array->position) : NULL;
    PyErr_Clear();
    PyObject *text = name ? PyUnicode_FromFormat("argument %d (%R)", array->position + 1, name)
                          : PyUnicode_FromFormat("argument %d", array->position + 1);
    Py_XDECREF(code);
    Py_XDECREF(names);
    return text;
}

static void fail_mixed(mfpy_state *state, const mfpy_array *first, const mfpy_array *other, PyObject *function)
{
    PyObject *name = argument_name(other, function), *first_name = argument_name(first, function);
    PyObject *what = mfpy_describe(other), *first_what = mfpy_describe(first);
    if (name && first_name && what && first_what)
        mfpy_fail(state, MF_E_DEVICE,
                  "%U is %U, but %U is %U; the arrays of a call must be of one library and on one device: convert one",
                  name, what, first_name, first_what);
    Py_XDECREF(name);
    Py_XDECREF(first_name);
    Py_XDECREF(what);
    Py_XDECREF(first_what);
}

int mfpy_place_of(mfpy_state *state, const mfpy_arrays *arrays, PyObject *function, mfpy_place *place)
{
    *place = (mfpy_place){.type = {.type = &PyBaseObject_Type, .kind = MFPY_STRUCT, .library = MFPY_NUMPY},
                          .device = MF_CPU};
    if (!arrays->count)
        return 0;
    const mfpy_array *first = &arrays->items[0];
    place->type = first->type;
    place->device = first->tensor.device;
    place->index = first->tensor.device_index;
    for (int i = 1; i < arrays->count; i++) {
        const mfpy_array *a = &arrays->items[i];
        bool same = a->type.library == place->type.library && a->tensor.device == place->device &&
                    a->tensor.device_index == place->index;
        if (!same || (place->type.library == MFPY_OTHER && a->type.type != place->type.type)) {
            fail_mixed(state, first, a, function);
            return -1;
        }
    }
    return 0;
}

int mfpy_add_tuple(mfpy_state *state, PyObject *captured, mfpy_arrays *arrays, int64_t stream)
{
    Py_ssize_t count = captured ? PyTuple_Size(captured) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *object = PyTuple_GetItem(captured, i);
        mfpy_type type;
        if (mfpy_classify(state, object, &type) < 0 || mfpy_arrays_add(state, arrays, object, &type, false, stream) < 0)
            return -1;
    }
    return 0;
}

static int check_output(mfpy_state *state, const mfpy_output *want, const mf_tensor *got, const mfpy_place *place)
{
    bool same = got->dtype == want->dtype && got->ndim == want->ndim &&
                memcmp(got->shape, want->shape, (size_t)want->ndim * sizeof *want->shape) == 0;
    if (!same) {
        PyObject *shape = mfpy_ints_tuple(got->ndim, got->shape);
        if (shape)
            mfpy_fail(state, got->dtype == want->dtype ? MF_E_SHAPE : MF_E_TYPE,
                      "out has shape %R and dtype %s; the result has shape %R and dtype %s: pass such an array", shape,
                      mf_dtype_numpy(got->dtype), want->shape_tuple, mf_dtype_numpy(want->dtype));
        Py_XDECREF(shape);
        return -1;
    }
    if (got->device != place->device || got->device_index != place->index) {
        mfpy_fail(state, MF_E_DEVICE, "out lies on %s, the other arrays on %s; pass an array on the same device",
                  got->device == MF_CPU ? "the CPU" : "another CUDA device or the GPU",
                  place->device == MF_CPU ? "the CPU" : "the GPU");
        return -1;
    }
    return 0;
}

static int bind_output(mfpy_state *state, const mfpy_output *want, const mfpy_place *place, PyObject *given,
                       mfpy_arrays *outputs, int64_t stream)
{
    if (given && given != Py_None) {
        mfpy_type type;
        mfpy_classify(state, given, &type);
        if (!mfpy_is_array(type.kind)) {
            PyErr_Format(PyExc_TypeError, "out must be an array or a tuple of arrays, not %R", given);
            return -1;
        }
        if (mfpy_arrays_add(state, outputs, given, &type, true, stream) < 0)
            return -1;
        return check_output(state, want, &outputs->items[outputs->count - 1].tensor, place);
    }
    mfpy_array made;
    if (mfpy_allocate(state, place, want->dtype, want->ndim, want->shape, want->shape_tuple, &made) < 0)
        return -1;
    if (outputs->count < outputs->capacity) {
        outputs->items[outputs->count++] = made;
        return 0;
    }
    int result = mfpy_arrays_add(state, outputs, made.object, &made.type, false, -1);
    mfpy_array_clear(&made);
    return result;
}

static int bind_outputs(mfpy_state *state, const mfpy_plan *plan, const mfpy_place *place, PyObject *out,
                        mfpy_arrays *outputs, int64_t stream)
{
    bool many = out && PyTuple_Check(out);
    Py_ssize_t given = !out || out == Py_None ? 0 : many ? PyTuple_Size(out) : 1;
    if (given > plan->outputs) {
        mfpy_fail(state, MF_E_INVALID, "out has %zd arrays; there are %d results", given, plan->outputs);
        return -1;
    }
    for (int i = 0; i < plan->outputs; i++) {
        PyObject *one = i >= given ? NULL : many ? PyTuple_GetItem(out, i) : out;
        if (bind_output(state, &plan->output[i], place, one, outputs, stream) < 0)
            return -1;
    }
    return 0;
}

static PyObject *wrap_result(mfpy_state *state, const mfpy_place *place, PyObject *object)
{
    if (place->type.library != MFPY_OTHER || Py_TYPE(object) == place->type.type)
        return Py_NewRef(object);
    PyObject *helper = mfpy_helper_get(state, MFPY_H_WRAP);
    return helper ? PyObject_CallFunctionObjArgs(helper, (PyObject *)place->type.type, object, NULL) : NULL;
}

static PyObject *result_of(mfpy_state *state, const mfpy_plan *plan, const mfpy_place *place,
                           const mfpy_arrays *outputs)
{
    if (!plan->finish && plan->outputs == 1)
        return wrap_result(state, place, outputs->items[0].object);
    PyObject *tuple = PyTuple_New(plan->outputs);
    for (int i = 0; tuple && i < plan->outputs; i++) {
        PyObject *object = wrap_result(state, place, outputs->items[i].object);
        if (!object || PyTuple_SetItem(tuple, i, object) < 0)
            Py_CLEAR(tuple);
    }
    if (!tuple || !plan->finish)
        return tuple;
    PyObject *result = PyObject_CallFunctionObjArgs(plan->finish, tuple, NULL);
    Py_DECREF(tuple);
    return result;
}

static mf_status submit(const mfpy_plan *plan, const mfpy_arrays *inputs, const mfpy_arrays *outputs, void *stream)
{
    mf_tensor local[12], *tensors = local;
    int count = inputs->count + outputs->count;
    if (count > (int)(sizeof local / sizeof *local))
        tensors = PyMem_Malloc((size_t)count * sizeof *tensors);
    if (!tensors)
        return MF_E_MEMORY;
    for (int i = 0; i < count; i++)
        tensors[i] = i < inputs->count ? inputs->items[i].tensor : outputs->items[i - inputs->count].tensor;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_plan_run(plan->plan, tensors, count, stream);
    Py_END_ALLOW_THREADS if (tensors != local) PyMem_Free(tensors);
    return status;
}

static int check_place(mfpy_state *state, const mfpy_plan *plan, const mfpy_arrays *arrays, const mfpy_place *place)
{
    const mf_context *context = ((mfpy_context *)plan->context)->context;
    int index = 0;
    mf_device_kind device = mf_context_device(context, &index);
    if (!mf_context_can_run(context)) {
        mfpy_fail(state, MF_E_STATE, "this plan was made for %s, which is not here; plan without target= to run",
                  mf_context_target(context));
        return -1;
    }
    if (arrays->count != plan->inputs) {
        int captured = plan->captured ? (int)PyTuple_Size(plan->captured) : 0;
        mfpy_fail(state, MF_E_INVALID, "%d arrays were given; the plan takes %d", arrays->count - captured,
                  plan->inputs - captured);
        return -1;
    }
    if (arrays->count && (device != place->device || index != place->index)) {
        mfpy_fail(state, MF_E_DEVICE,
                  "the plan runs on %s, the arrays lie on %s %d; move them or plan for their device",
                  mf_context_target(context), place->device == MF_CPU ? "the CPU" : "CUDA device", place->index);
        return -1;
    }
    return 0;
}

PyObject *mfpy_plan_execute(mfpy_state *state, PyObject *self, mfpy_arrays *arrays, PyObject *out, PyObject *stream)
{
    const mfpy_plan *plan = PLAN(self);
    mfpy_arrays outputs;
    mfpy_arrays_init(&outputs);
    PyObject *result = NULL;
    mfpy_place place;
    void *pointer;
    int64_t import_stream = -1;
    if (stream && mfpy_import_stream(state, stream, &import_stream) < 0)
        return NULL;
    if (mfpy_add_tuple(state, plan->captured, arrays, import_stream) < 0 ||
        mfpy_place_of(state, arrays, NULL, &place) < 0 || check_place(state, plan, arrays, &place) < 0 ||
        mfpy_stream(state, &place, stream, &pointer) < 0 ||
        bind_outputs(state, plan, &place, out, &outputs, import_stream) < 0)
        goto done;
    mf_status status = submit(plan, arrays, &outputs, pointer);
    result = status == MF_OK ? result_of(state, plan, &place, &outputs) : mfpy_raise(state, status);
done:
    mfpy_arrays_clear(&outputs);
    return result;
}

static PyObject *plan_run(PyObject *self, PyObject *args, PyObject *kwargs)
{
    mfpy_state *state = mfpy_state_of_object(self);
    mfpy_signature signature;
    mfpy_arrays arrays;
    mfpy_signature_init(&signature);
    mfpy_arrays_init(&arrays);
    PyObject *result = NULL;
    if (mfpy_signature_of_call(state, args, kwargs, &signature, &arrays) == 0) {
        if (signature.traced)
            PyErr_SetString(PyExc_TypeError, "a plan cannot be run on traced values; call the function itself");
        else
            result = mfpy_plan_execute(state, self, &arrays, signature.out, signature.stream);
    }
    mfpy_signature_clear(&signature);
    mfpy_arrays_clear(&arrays);
    return result;
}

/* ---- what it knows ---- */

static PyObject *plan_explain(PyObject *self, PyTypeObject *defining, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *kwnames)
{
    const char *format = "text";
    const mfpy_param params[] = {{.name = "format", .kind = 's', .out = &format, .optional = true}, {0}};
    if (mfpy_parse("explain", args, nargs, kwnames, params) < 0)
        return NULL;
    bool json = !strcmp(format, "json");
    if (!json && strcmp(format, "text"))
        return PyErr_Format(PyExc_ValueError, "format must be \"text\" or \"json\", not \"%s\"", format);
    char *text = NULL;
    mf_status status = mf_plan_explain(&text, PLAN(self)->plan, json);
    if (status != MF_OK)
        return mfpy_raise(mfpy_state_of(defining), status);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    mf_free(text);
    return result;
}

/* {kernel name: its source, or its machine code}, whatever exists of it. */
static PyObject *kernels(PyObject *self, bool sources)
{
    PyObject *dict = PyDict_New();
    int count = mf_plan_kernels(PLAN(self)->plan);
    for (int i = 0; dict && i < count; i++) {
        mf_kernel_info info = {0};
        mf_status status = mf_plan_kernel(PLAN(self)->plan, i, &info);
        if (status != MF_OK) {
            Py_CLEAR(dict);
            return mfpy_raise(mfpy_state_of_object(self), status);
        }
        if (sources ? !info.source : !info.cubin)
            continue;
        PyObject *value = sources ? PyUnicode_FromString(info.source)
                                  : PyBytes_FromStringAndSize(info.cubin, (Py_ssize_t)info.cubin_bytes);
        if (!value || PyDict_SetItemString(dict, info.name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *plan_sources(PyObject *self, PyObject *unused)
{
    (void)unused;
    return kernels(self, true);
}

static PyObject *plan_cubins(PyObject *self, PyObject *unused)
{
    (void)unused;
    return kernels(self, false);
}

static PyObject *plan_device_header(PyObject *self, PyTypeObject *defining, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames)
{
    const char *name = "plan";
    char *text = NULL;
    int threads = 0;
    const mfpy_param params[] = {{"name", 's', &name, true, false}, {"threads", 'i', &threads, true, false}, {0}};
    if (mfpy_parse("device_header", args, nargs, kwnames, params) < 0)
        return NULL;
    mfpy_state *state = mfpy_state_of(defining);
    PyObject *make = mfpy_helper_get(state, MFPY_H_DEVICE_HEADER);
    if (!make)
        return NULL;
    mf_status status = mf_plan_device_header(&text, PLAN(self)->plan, name, threads);
    if (status != MF_OK)
        return mfpy_raise(state, status);
    PyObject *result = PyObject_CallFunction(make, "s", text);
    mf_free(text);
    return result;
}

/* mathfuse._tune's functions, with the plan in front. */
static PyObject *call_helper(PyObject *self, int helper, PyObject *args, PyObject *kwargs)
{
    PyObject *function = mfpy_helper_get(mfpy_state_of_object(self), helper);
    Py_ssize_t count = args ? PyTuple_Size(args) : 0;
    PyObject *all = function ? PyTuple_New(count + 1) : NULL;
    if (!all || PyTuple_SetItem(all, 0, Py_NewRef(self)) < 0) {
        Py_XDECREF(all);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
    PyObject *result = PyObject_Call(function, all, kwargs);
    Py_DECREF(all);
    return result;
}

static PyObject *plan_tune(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_helper(self, MFPY_H_TUNE, args, kwargs);
}

static PyObject *plan_profile(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_helper(self, MFPY_H_PROFILE, args, kwargs);
}

static PyObject *plan_tuning(PyObject *self, void *closure)
{
    (void)closure;
    return call_helper(self, MFPY_H_TUNING, NULL, NULL);
}

static PyObject *plan_launches(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(mf_plan_launches(PLAN(self)->plan));
}

static PyObject *plan_workspace(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(mf_plan_workspace(PLAN(self)->plan));
}

static PyObject *plan_memory(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(mf_plan_memory(PLAN(self)->plan));
}

static PyObject *plan_target(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(mf_context_target(((mfpy_context *)PLAN(self)->context)->context));
}

static PyObject *plan_outputs(PyObject *self, void *closure)
{
    (void)closure;
    PyObject *tuple = PyTuple_New(PLAN(self)->outputs);
    for (int i = 0; tuple && i < PLAN(self)->outputs; i++) {
        const mfpy_output *o = &PLAN(self)->output[i];
        PyObject *item = Py_BuildValue("Os", o->shape_tuple, mf_dtype_numpy(o->dtype));
        if (!item || PyTuple_SetItem(tuple, i, item) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *plan_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<mathfuse plan for %s: %d inputs, %d outputs, %d launches>",
                                mf_context_target(((mfpy_context *)PLAN(self)->context)->context), PLAN(self)->inputs,
                                PLAN(self)->outputs, mf_plan_launches(PLAN(self)->plan));
}

static PyGetSetDef plan_getset[] = {
    {"launches", plan_launches, NULL, "kernel launches (GPU) or library and loop calls (CPU) of one run", NULL},
    {"workspace", plan_workspace, NULL, "bytes of scratch memory of one run", NULL},
    {"memory", plan_memory, NULL, "about how many bytes the plan keeps on the host between runs", NULL},
    {"tuning", plan_tuning, NULL, "what is known of its tuning: mathfuse.tuning.Tuning", NULL},
    {"target", plan_target, NULL, "what it was planned for: \"cpu\" or \"sm_90a\"", NULL},
    {"outputs", plan_outputs, NULL, "(shape, dtype) of every result", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef plan_methods[] = {
    {"run", (PyCFunction)(void (*)(void))plan_run, METH_VARARGS | METH_KEYWORDS,
     "run($self, /, *arrays, out=None, stream=None)\n--\n\nRun on arrays of the shapes planned for."},
    {"explain", (PyCFunction)(void (*)(void))plan_explain, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "explain($self, /, format='text')\n--\n\nWhat will run, and why: text, or JSON text."},
    {"sources", plan_sources, METH_NOARGS, "sources($self, /)\n--\n\nGenerated CUDA source by kernel name."},
    {"device_header", (PyCFunction)(void (*)(void))plan_device_header, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "device_header($self, /, name='plan', threads=0)\n--\n\nThe plan as device functions in a namespace: text of a "
     "CUDA "
     "header. threads: of the blocks; 0: as each step does best."},
    {"tune", (PyCFunction)(void (*)(void))plan_tune, METH_VARARGS | METH_KEYWORDS,
     "tune($self, /, *, progress=False, seconds=10.0, candidates=64)\n--\n\nMeasure the ways to run, use the fastest "
     "right one from now on, remember it; see mathfuse.tuning.tune."},
    {"_tune", (PyCFunction)(void (*)(void))mfpy_plan_tune, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "_tune($self, /, progress=None, seconds=10.0, candidates=64)\n--\n\nTune; progress(event) may return True to "
     "stop."},
    {"profile", (PyCFunction)(void (*)(void))plan_profile, METH_VARARGS | METH_KEYWORDS,
     "profile($self, /, seconds=1.0)\n--\n\nEach step's time, bytes and share of the roofline; see "
     "mathfuse.tuning.Profile."},
    {"_profile", (PyCFunction)(void (*)(void))mfpy_plan_profile, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "_profile($self, /, seconds=1.0)\n--\n\nThe same as JSON text."},
    {"_tuning", mfpy_plan_tuning, METH_NOARGS, "_tuning($self, /)\n--\n\nWhat is known of its tuning, as JSON."},
    {"cubins", plan_cubins, METH_NOARGS, "cubins($self, /)\n--\n\nMachine code by kernel name."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "How a computation runs on a device; made by mathfuse.plan."},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_traverse, plan_traverse},
    {Py_tp_clear, plan_clear},
    {Py_tp_repr, plan_repr},
    {Py_tp_getset, plan_getset},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

PyType_Spec mfpy_plan_spec = {
    .name = "mathfuse._core.Plan",
    .basicsize = sizeof(mfpy_plan),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = plan_slots,
};
