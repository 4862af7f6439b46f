/* The values of a row as PostgreSQL's replication stream tells them. */

#include "native.h"

#include <stdint.h>

static inline uint32_t
read_u32(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

/* One value; the place behind it goes into *at. */
static PyObject *
one_value(const uint8_t *data, Py_ssize_t end, Py_ssize_t *at, PyObject *unchanged)
{
    uint32_t size;
    PyObject *value;
    if (*at >= end) {
        PyErr_SetString(PyExc_ValueError, "a value is missing");
        return NULL;
    }
    switch (data[(*at)++]) {
    case 'n':
        return Py_NewRef(Py_None);
    case 'u':
        return Py_NewRef(unchanged);
    case 't':
        break;
    default:
        PyErr_Format(PyExc_ValueError, "a value of kind %d", (int)data[*at - 1]);
        return NULL;
    }
    if (end - *at < 4 || (size = read_u32(data + *at)) > (uint64_t)(end - *at - 4)) {
        PyErr_SetString(PyExc_ValueError, "a value reaches beyond its message");
        return NULL;
    }
    value = PyBytes_FromStringAndSize((const char *)data + *at + 4, (Py_ssize_t)size);
    *at += 4 + (Py_ssize_t)size;
    return value;
}

const char native_row_values_doc[] =
"row_values(data, at, unchanged, /)\n--\n\n"
"The values of the row that begins at a place of a message, and the place behind it.";

PyObject *
native_row_values(PyObject *module, PyObject *arguments)
{
    Py_buffer given;
    const uint8_t *data;
    Py_ssize_t at, count, i;
    PyObject *unchanged, *values = NULL;
    if (!PyArg_ParseTuple(arguments, "y*nO", &given, &at, &unchanged)) {
        return NULL;
    }
    data = given.buf;
    if (at < 0 || at > given.len || given.len - at < 2) {
        PyErr_SetString(PyExc_ValueError, "a row is missing");
        goto done;
    }
    count = (Py_ssize_t)data[at] << 8 | data[at + 1];
    at += 2;
    if (count > given.len - at) { /* every value has a byte at least */
        PyErr_SetString(PyExc_ValueError, "a value is missing");
        goto done;
    }
    values = PyList_New(count);
    for (i = 0; values != NULL && i < count; i++) {
        PyObject *value = one_value(data, given.len, &at, unchanged);
        if (value == NULL) {
            Py_CLEAR(values);
            break;
        }
        PyList_SET_ITEM(values, i, value);
    }
done:
    PyBuffer_Release(&given);
    return values == NULL ? NULL : Py_BuildValue("(Nn)", values, at);
}
