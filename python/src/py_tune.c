/* Plan._tune, and the tuning database's functions of mathfuse._core. */
#include "py_core.h"

/* ---- progress: C calls back into Python ---- */

typedef struct caller {
    PyObject *function;                 /* or NULL */
    PyObject *type, *value, *traceback; /* of what it raised, or of Ctrl-C */
} caller;

static int call(const mf_tune_event *e, caller *to)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (!to->function)
        return 0;
    PyObject *result = PyObject_CallFunction(to->function, "{sssisisssisisisdsdsdsd}", "stage", e->stage, "step",
                                             e->step, "steps", e->steps, "candidate", e->candidate, "done", e->done,
                                             "count", e->count, "alive", e->alive, "elapsed_s", e->elapsed_s, "left_s",
                                             e->left_s, "default_us", e->default_us, "best_us", e->best_us);
    int stop = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    return stop;
}

static int on_progress(const mf_tune_event *event, void *user)
{
    caller *to = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    int stop = to->type ? 1 : call(event, to);
    if (stop < 0)
        PyErr_Fetch(&to->type, &to->value, &to->traceback);
    PyGILState_Release(gil);
    return stop != 0;
}

static PyObject *json_text(char *text)
{
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    mf_free(text);
    return result;
}

PyObject *mfpy_plan_tune(PyObject *self, PyTypeObject *defining, MFPY_FASTCALL)
{
    mf_tune_options options = MF_TUNE_OPTIONS_INIT;
    PyObject *progress = Py_None;
    const mfpy_param params[] = {{"progress", 'O', &progress, true, false},
                                 {"seconds", 'd', &options.seconds, true, false},
                                 {"candidates", 'i', &options.candidates, true, false},
                                 {0}};
    if (mfpy_parse("_tune", args, nargs, kwnames, params) < 0)
        return NULL;
    caller to = {.function = progress == Py_None ? NULL : progress};
    options.progress = on_progress;
    options.user = &to;
    mf_plan *plan = ((mfpy_plan *)self)->plan;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_plan_tune(plan, &options);
    Py_END_ALLOW_THREADS if (to.type)
    {
        PyErr_Restore(to.type, to.value, to.traceback);
        return NULL;
    }
    if (status != MF_OK)
        return mfpy_raise(mfpy_state_of(defining), status);
    Py_RETURN_NONE;
}

PyObject *mfpy_plan_tuning(PyObject *self, PyObject *unused)
{
    (void)unused;
    char *text = NULL;
    mf_status status = mf_plan_tuning(&text, ((mfpy_plan *)self)->plan);
    return status == MF_OK ? json_text(text) : mfpy_raise(mfpy_state_of_object(self), status);
}

PyObject *mfpy_plan_profile(PyObject *self, PyTypeObject *defining, MFPY_FASTCALL)
{
    double seconds = 1;
    char *text = NULL;
    const mfpy_param params[] = {{"seconds", 'd', &seconds, true, false}, {0}};
    if (mfpy_parse("_profile", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_plan_profile(&text, ((mfpy_plan *)self)->plan, seconds);
    Py_END_ALLOW_THREADS return status == MF_OK ? json_text(text) : mfpy_raise(mfpy_state_of(defining), status);
}

/* ---- records ---- */

/* To mathfuse._log.receive, from any thread; what it raises is shown and forgotten. */
static void on_record(const char *topic, const char *text, void *user)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *raised[3];
    PyErr_Fetch(&raised[0], &raised[1], &raised[2]);
    PyObject *result = PyObject_CallFunction(user, "ss", topic, text);
    if (!result)
        PyErr_WriteUnraisable(user);
    Py_XDECREF(result);
    PyErr_Restore(raised[0], raised[1], raised[2]);
    PyGILState_Release(gil);
}

PyObject *mfpy_log_to(PyObject *module, MFPY_FASTCALL)
{
    const char *topics = NULL;
    PyObject *function = Py_None;
    const mfpy_param params[] = {{"topics", 's', &topics, true, false}, {"function", 'O', &function, true, false}, {0}};
    if (mfpy_parse("log_to", args, nargs, kwnames, params) < 0)
        return NULL;
    bool given = function != Py_None;
    if (given)
        Py_INCREF(function); /* for good: another thread may be about to call it */
    mf_status status = mf_log_to(topics, given ? on_record : NULL, given ? function : NULL);
    if (status != MF_OK)
        return mfpy_raise(PyModule_GetState(module), status);
    Py_RETURN_NONE;
}

/* ---- the database ---- */

PyObject *mfpy_tune_database(PyObject *module, PyObject *unused)
{
    (void)unused;
    char *text = NULL;
    mf_status status = mf_tune_database(&text);
    return status == MF_OK ? json_text(text) : mfpy_raise(PyModule_GetState(module), status);
}

PyObject *mfpy_tune_records(PyObject *module, MFPY_FASTCALL)
{
    const char *path = NULL, *filter = NULL;
    char *text = NULL;
    int whole = 0;
    const mfpy_param params[] = {{"path", 's', &path, true, false},
                                 {"filter", 's', &filter, true, false},
                                 {"whole", 'p', &whole, true, false},
                                 {0}};
    if (mfpy_parse("tune_records", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_status status = mf_tune_records(&text, path, filter, whole);
    return status == MF_OK ? json_text(text) : mfpy_raise(PyModule_GetState(module), status);
}

PyObject *mfpy_tune_verify(PyObject *module, MFPY_FASTCALL)
{
    const char *path = NULL;
    char *text = NULL;
    const mfpy_param params[] = {{"path", 's', &path, true, false}, {0}};
    if (mfpy_parse("tune_verify", args, nargs, kwnames, params) < 0)
        return NULL;
    mf_status status = mf_tune_verify(&text, path);
    return status == MF_OK ? json_text(text) : mfpy_raise(PyModule_GetState(module), status);
}

typedef mf_status change(const char *path, const char *text, int *count);

static PyObject *changed(PyObject *module, const char *name, const char *second, change *function, MFPY_FASTCALL)
{
    const char *path = NULL, *text = NULL;
    int count = 0;
    const mfpy_param params[] = {{second, 's', &text, true, false}, {"path", 's', &path, true, false}, {0}};
    if (mfpy_parse(name, args, nargs, kwnames, params) < 0)
        return NULL;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = function(path, text, &count);
    Py_END_ALLOW_THREADS return status == MF_OK ? PyLong_FromLong(count)
                                                : mfpy_raise(PyModule_GetState(module), status);
}

PyObject *mfpy_tune_merge(PyObject *module, MFPY_FASTCALL)
{
    return changed(module, "tune_merge", "other", mf_tune_merge, args, nargs, kwnames);
}

PyObject *mfpy_tune_import(PyObject *module, MFPY_FASTCALL)
{
    return changed(module, "tune_import", "json", mf_tune_import, args, nargs, kwnames);
}

PyObject *mfpy_tune_clear(PyObject *module, MFPY_FASTCALL)
{
    return changed(module, "tune_clear", "filter", mf_tune_clear, args, nargs, kwnames);
}
