/* mathfuse._core: module state, helpers imported on first use, and the functions that belong to no object. */
#include "py_core.h"

static const char *const name_texts[MFPY_NAME_COUNT] = {
    [MFPY_S_ARRAY_STRUCT] = "__array_struct__",
    [MFPY_S_DLPACK] = "__dlpack__",
    [MFPY_S_CAI] = "__cuda_array_interface__",
    [MFPY_S_DTYPE] = "dtype",
    [MFPY_S_NAME] = "name",
    [MFPY_S_OUT] = "out",
    [MFPY_S_STREAM] = "stream",
    [MFPY_S_REQUIRES_GRAD] = "requires_grad",
    [MFPY_S_IS_CONJ] = "is_conj",
    [MFPY_S_IS_NEG] = "is_neg",
};

static const struct {
    const char *module, *attribute;
} helper_names[MFPY_HELPER_COUNT] = {
    [MFPY_H_ERROR_CLASS] = {"mathfuse.errors", "error_class"},
    [MFPY_H_CONVERT] = {"mathfuse._interop", "convert"},
    [MFPY_H_EMPTY] = {"mathfuse._interop", "empty"},
    [MFPY_H_CURRENT_STREAM] = {"mathfuse._interop", "current_stream"},
    [MFPY_H_STREAM_POINTER] = {"mathfuse._interop", "stream_pointer"},
    [MFPY_H_DTYPE] = {"mathfuse._interop", "numpy_dtype"},
    [MFPY_H_TORCH_PLAIN] = {"mathfuse._interop", "torch_plain"},
    [MFPY_H_WRAP] = {"mathfuse._interop", "wrap"},
    [MFPY_H_BUILD] = {"mathfuse._trace", "build"},
    [MFPY_H_NUMPY_EMPTY] = {"numpy", "empty"},
    [MFPY_H_METHOD] = {"types", "MethodType"},
    [MFPY_H_TUNE] = {"mathfuse.tuning", "tune"},
    [MFPY_H_PROFILE] = {"mathfuse.tuning", "profile"},
    [MFPY_H_TUNING] = {"mathfuse.tuning", "tuning_of"},
    [MFPY_H_DEVICE_HEADER] = {"mathfuse._plan", "DeviceHeader"},
};

PyObject *mfpy_helper_get(mfpy_state *state, mfpy_helper helper)
{
    if (state->helpers[helper])
        return state->helpers[helper];
    PyObject *module = PyImport_ImportModule(helper_names[helper].module);
    PyObject *found = module ? PyObject_GetAttrString(module, helper_names[helper].attribute) : NULL;
    Py_XDECREF(module);
    if (!found)
        return NULL;
    MFPY_LOCK(state->lock);
    PyObject *extra = found;
    if (!state->helpers[helper]) {
        state->helpers[helper] = found;
        extra = NULL;
    }
    MFPY_UNLOCK(state->lock);
    Py_XDECREF(extra);
    return state->helpers[helper];
}

/* ---- functions ---- */

static PyObject *module_info(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    mfpy_state *state = PyModule_GetState(module);
    PyObject *context = Py_None;
    int json = 0;
    const mfpy_param params[] = {{.name = "context", .kind = 'O', .out = &context, .optional = true},
                                 {.name = "json", .kind = 'p', .out = &json, .optional = true},
                                 {0}};
    if (mfpy_parse("info", args, nargs, kwnames, params) < 0)
        return NULL;
    if (context != Py_None && Py_TYPE(context) != state->context_type)
        return PyErr_Format(PyExc_TypeError, "context must be a Context or None, not %R", context);
    mf_context *native = context == Py_None ? NULL : ((mfpy_context *)context)->context;
    char *text = NULL;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_context_info(&text, native, json);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(state, status);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    mf_free(text);
    return result;
}

static PyObject *module_library_path(PyObject *module, PyObject *directories)
{
    const char *text = PyUnicode_Check(directories) ? PyUnicode_AsUTF8AndSize(directories, NULL) : NULL;
    if (!text)
        return PyErr_Format(PyExc_TypeError, "directories must be a str, not %R", directories);
    mf_status status = mf_library_path(text);
    if (status != MF_OK)
        return mfpy_raise(PyModule_GetState(module), status);
    Py_RETURN_NONE;
}

static PyObject *module_is_array(PyObject *module, PyObject *object)
{
    mfpy_type type;
    mfpy_classify(PyModule_GetState(module), object, &type);
    return PyBool_FromLong(mfpy_is_array(type.kind));
}

static PyObject *module_inspect(PyObject *module, PyObject *object)
{
    mfpy_state *state = PyModule_GetState(module);
    mfpy_type type;
    mfpy_array array;
    mfpy_classify(state, object, &type);
    if (!mfpy_is_array(type.kind))
        return PyErr_Format(PyExc_TypeError, "%R is not an array", object);
    if (mfpy_import(state, object, &type, false, -1, &array) < 0)
        return NULL;
    const mf_tensor *t = &array.tensor;
    PyObject *shape = mfpy_ints_tuple(t->ndim, t->shape);
    PyObject *result = shape ? Py_BuildValue("sNsi", mf_dtype_name(t->dtype), shape,
                                             t->device == MF_CPU ? "cpu" : "cuda", (int)t->device_index)
                             : NULL;
    mfpy_array_clear(&array);
    return result;
}

static PyObject *module_context_for(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const char *device = NULL;
    int index = 0;
    const mfpy_param params[] = {{.name = "device", .kind = 's', .out = &device},
                                 {.name = "index", .kind = 'i', .out = &index, .optional = true},
                                 {0}};
    if (mfpy_parse("context_for", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_device_kind kind = strcmp(device, "cpu") == 0 ? MF_CPU : MF_CUDA;
    return Py_XNewRef(mfpy_context_for(PyModule_GetState(module), kind, kind == MF_CPU ? 0 : index));
}

static PyObject *module_dtype(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!text)
        return PyErr_Format(PyExc_TypeError, "a dtype's name must be a str, not %R", name);
    mf_dtype dtype;
    mf_status status = mf_dtype_parse(&dtype, text);
    if (status != MF_OK)
        return mfpy_raise(PyModule_GetState(module), status);
    return Py_BuildValue("ss", mf_dtype_name(dtype), mf_dtype_numpy(dtype));
}

static PyObject *module_promote(PyObject *module, PyObject *args)
{
    const char *names[2];
    mf_dtype dtypes[2];
    if (!PyArg_ParseTuple(args, "ss", &names[0], &names[1]))
        return NULL;
    for (int i = 0; i < 2; i++) {
        mf_status status = mf_dtype_parse(&dtypes[i], names[i]);
        if (status != MF_OK)
            return mfpy_raise(PyModule_GetState(module), status);
    }
    return PyUnicode_FromString(mf_dtype_name(mf_dtype_promote(dtypes[0], dtypes[1])));
}

static PyObject *module_version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(mf_version());
}

static PyObject *module_compile(PyObject *module, PyObject *args)
{
    static const char *const codes[] = {"cubin", "ptx", "ltoir"};
    const char *kind, *arch, *name, *source;
    if (!PyArg_ParseTuple(args, "ssss", &kind, &arch, &name, &source))
        return NULL;
    int code = 0;
    while (code < 3 && strcmp(codes[code], kind) != 0)
        code++;
    void *out = NULL;
    size_t bytes = 0;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_compile(&out, &bytes, (mf_code)code, arch, name, source);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(PyModule_GetState(module), status);
    PyObject *result = PyBytes_FromStringAndSize(out, (Py_ssize_t)bytes);
    mf_free(out);
    return result;
}

/* [(name, arity, doc)] of op.def, and [(value, name, text, exception)] of status.def. */
static PyObject *module_ops(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *list = PyList_New(MF_OP_COUNT);
    for (int op = 0; list && op < MF_OP_COUNT; op++) {
        PyObject *item = Py_BuildValue("sis", mf_op_name((mf_op)op), mf_op_arity((mf_op)op), mf_op_doc((mf_op)op));
        if (!item || PyList_SetItem(list, op, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *module_statuses(PyObject *module, PyObject *unused)
{
    static const mf_status values[] = {
#define MF_STATUS(ENUM, value, text, python) MF_##ENUM,
#include "mathfuse/def/status.def"
#undef MF_STATUS
    };
    (void)module;
    (void)unused;
    Py_ssize_t count = sizeof values / sizeof *values;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *item = Py_BuildValue("isss", (int)values[i], mf_status_name(values[i]), mf_status_text(values[i]),
                                       mf_status_python(values[i]));
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyMethodDef module_methods[] = {
    {"info", (PyCFunction)(void (*)(void))module_info, METH_FASTCALL | METH_KEYWORDS,
     "info($module, /, context=None, json=False)\n--\n\nThe libraries that providers use, as text or JSON."},
    {"library_path", module_library_path, METH_O,
     "library_path($module, directories, /)\n--\n\nWhere vendor libraries are looked for first, ':'-separated."},
    {"is_array", module_is_array, METH_O,
     "is_array($module, object, /)\n--\n\nWhether an object is taken as an array."},
    {"inspect", module_inspect, METH_O,
     "inspect($module, array, /)\n--\n\n(dtype, shape, device, index) of an array as it is imported."},
    {"context_for", (PyCFunction)(void (*)(void))module_context_for, METH_FASTCALL | METH_KEYWORDS,
     "context_for($module, /, device, index=0)\n--\n\nThe shared context of a device."},
    {"dtype", module_dtype, METH_O, "dtype($module, name, /)\n--\n\n(short name, NumPy name) of a dtype."},
    {"promote", module_promote, METH_VARARGS, "promote($module, a, b, /)\n--\n\nThe result dtype of two dtypes."},
    {"compile", module_compile, METH_VARARGS,
     "compile($module, code, arch, name, source, /)\n--\n\nCUDA source as \"cubin\", \"ptx\" or \"ltoir\"."},
    {"log_to", (PyCFunction)(void (*)(void))mfpy_log_to, METH_FASTCALL | METH_KEYWORDS,
     "log_to($module, /, topics=None, function=None)\n--\n\nRecords of topics go to function(topic, text), or stderr."},
    {"tune_database", mfpy_tune_database, METH_NOARGS,
     "tune_database($module, /)\n--\n\nThe file of the user's tuning database."},
    {"tune_records", (PyCFunction)(void (*)(void))mfpy_tune_records, METH_FASTCALL | METH_KEYWORDS,
     "tune_records($module, /, path=None, filter=None, whole=False)\n--\n\nTuning records as a JSON array."},
    {"tune_verify", (PyCFunction)(void (*)(void))mfpy_tune_verify, METH_FASTCALL | METH_KEYWORDS,
     "tune_verify($module, /, path=None)\n--\n\nFaults of a tuning database, one a line."},
    {"tune_merge", (PyCFunction)(void (*)(void))mfpy_tune_merge, METH_FASTCALL | METH_KEYWORDS,
     "tune_merge($module, /, other, path=None)\n--\n\nTake the records of another database; how many."},
    {"tune_import", (PyCFunction)(void (*)(void))mfpy_tune_import, METH_FASTCALL | METH_KEYWORDS,
     "tune_import($module, /, json, path=None)\n--\n\nTake records from JSON; how many."},
    {"tune_clear", (PyCFunction)(void (*)(void))mfpy_tune_clear, METH_FASTCALL | METH_KEYWORDS,
     "tune_clear($module, /, filter=None, path=None)\n--\n\nRemove records; how many."},
    {"version", module_version, METH_NOARGS, "version($module, /)\n--\n\nThe library's version."},
    {"ops", module_ops, METH_NOARGS, "ops($module, /)\n--\n\n(name, arity, doc) of every elementwise operation."},
    {"statuses", module_statuses, METH_NOARGS,
     "statuses($module, /)\n--\n\n(value, name, text, exception) of every status."},
    {NULL, NULL, 0, NULL},
};

/* ---- life ---- */

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **slot)
{
    *slot = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *slot ? PyModule_AddType(module, *slot) : -1;
}

static int module_exec(PyObject *module)
{
    mfpy_state *state = PyModule_GetState(module);
    state->lock = MFPY_LOCK_NEW();
    for (int i = 0; i < MFPY_NAME_COUNT; i++)
        if (!(state->names[i] = PyUnicode_InternFromString(name_texts[i])))
            return -1;
    if (add_type(module, &mfpy_context_spec, &state->context_type) < 0 ||
        add_type(module, &mfpy_graph_spec, &state->graph_type) < 0 ||
        add_type(module, &mfpy_plan_spec, &state->plan_type) < 0 ||
        add_type(module, &mfpy_function_spec, &state->function_type) < 0 ||
        add_type(module, &mfpy_kernel_spec, &state->kernel_type) < 0 ||
        add_type(module, &mfpy_launcher_spec, &state->launcher_type) < 0 ||
        add_type(module, &mfpy_launch_spec, &state->launch_type) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "MATCH_UNFUSED", MF_PLAN_MATCH_UNFUSED) < 0 ||
                   PyModule_AddIntConstant(module, "NO_FUSION", MF_PLAN_NO_FUSION) < 0 ||
                   PyModule_AddIntConstant(module, "UPPER", MF_UPPER) < 0 ||
                   PyModule_AddIntConstant(module, "UNIT", MF_UNIT) < 0 ||
                   PyModule_AddIntConstant(module, "TRANS", MF_TRANS) < 0 ||
                   PyModule_AddIntConstant(module, "ADJOINT", MF_ADJOINT) < 0 ||
                   PyModule_AddIntConstant(module, "FULL", MF_FULL) < 0 ||
                   PyModule_AddIntConstant(module, "SYMMETRIC", MF_SYMMETRIC) < 0 ||
                   PyModule_AddIntConstant(module, "RAW", MF_RAW) < 0 ||
                   PyModule_AddIntConstant(module, "MAX_DIMS", MF_MAX_DIMS) < 0
               ? -1
               : 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    mfpy_state *state = PyModule_GetState(module);
    Py_VISIT(state->context_type);
    Py_VISIT(state->graph_type);
    Py_VISIT(state->plan_type);
    Py_VISIT(state->function_type);
    Py_VISIT(state->kernel_type);
    Py_VISIT(state->launcher_type);
    Py_VISIT(state->launch_type);
    for (int i = 0; i < MFPY_HELPER_COUNT; i++)
        Py_VISIT(state->helpers[i]);
    for (int i = 0; i < MF_DTYPE_COUNT; i++)
        Py_VISIT(state->dtypes[i]);
    for (int i = 0; i < MFPY_TYPE_SLOTS; i++)
        Py_VISIT(state->types[i].type);
    Py_VISIT(state->cpu);
    for (int i = 0; i < MFPY_MAX_DEVICES; i++)
        Py_VISIT(state->cuda[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    mfpy_state *state = PyModule_GetState(module);
    Py_CLEAR(state->context_type);
    Py_CLEAR(state->graph_type);
    Py_CLEAR(state->plan_type);
    Py_CLEAR(state->function_type);
    Py_CLEAR(state->kernel_type);
    Py_CLEAR(state->launcher_type);
    Py_CLEAR(state->launch_type);
    for (int i = 0; i < MFPY_NAME_COUNT; i++)
        Py_CLEAR(state->names[i]);
    for (int i = 0; i < MFPY_HELPER_COUNT; i++)
        Py_CLEAR(state->helpers[i]);
    for (int i = 0; i < MF_DTYPE_COUNT; i++)
        Py_CLEAR(state->dtypes[i]);
    for (int i = 0; i < MFPY_TYPE_SLOTS; i++)
        Py_CLEAR(state->types[i].type);
    Py_CLEAR(state->cpu);
    for (int i = 0; i < MFPY_MAX_DEVICES; i++)
        Py_CLEAR(state->cuda[i]);
    return 0;
}

static void module_free(void *module)
{
    mfpy_state *state = PyModule_GetState(module);
    module_clear(module);
    MFPY_LOCK_FREE(state->lock);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mathfuse._core",
    .m_doc = "The compiled part of mathfuse: arrays in, plans out.",
    .m_size = sizeof(mfpy_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
