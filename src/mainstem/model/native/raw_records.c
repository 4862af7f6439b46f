/* Records of one batch as tuples, for compaction. */

#include "native.h"
#include "reader.h"

static PyObject *
raw_record(PyTypeObject *type, Reader *reader, int64_t base_offset)
{
    Py_ssize_t start, rest, end, place;
    int64_t timestamp_delta, offset_delta, key_size, value_size, offset;
    PyObject *record, *key;
    if (read_bounds(reader, &end) < 0) {
        return NULL;
    }
    start = reader->at;
    reader->at++;
    timestamp_delta = read_varint(reader);
    rest = reader->at;
    offset_delta = reader->error == NULL ? read_varint(reader) : 0;
    key_size = reader->error == NULL ? read_varint(reader) : 0;
    if (reader->error != NULL) {
        return NULL;
    }
    place = reader->at;
    if (place >= end || key_size >= end - place) {
        reader->error = "a key is longer than its record";
        return NULL;
    }
    reader->at = place + (key_size > 0 ? (Py_ssize_t)key_size : 0);
    value_size = read_varint(reader);
    if (reader->error != NULL) {
        return NULL;
    }
    if (__builtin_add_overflow(base_offset, offset_delta, &offset)) {
        reader->error = "a record at an impossible offset";
        return NULL;
    }
    if (key_size >= 0) {
        key = PyBytes_FromStringAndSize((const char *)reader->data + place, (Py_ssize_t)key_size);
    } else {
        key = Py_None;
        Py_INCREF(key);
    }
    record = key == NULL ? NULL : type->tp_alloc(type, 7);
    if (record == NULL) {
        Py_XDECREF(key);
        return NULL;
    }
    PyTuple_SET_ITEM(record, 0, PyLong_FromLongLong(offset));
    PyTuple_SET_ITEM(record, 1, PyLong_FromLongLong(timestamp_delta));
    PyTuple_SET_ITEM(record, 2, key);
    PyTuple_SET_ITEM(record, 3, PyBool_FromLong(value_size < 0));
    PyTuple_SET_ITEM(record, 4, PyLong_FromSsize_t(start));
    PyTuple_SET_ITEM(record, 5, PyLong_FromSsize_t(rest));
    PyTuple_SET_ITEM(record, 6, PyLong_FromSsize_t(end));
    if (PyErr_Occurred()) {
        Py_DECREF(record);
        return NULL;
    }
    reader->at = end;
    return record;
}

const char native_raw_records_doc[] =
"raw_records(kind, body, record_count, base_offset, /)\n--\n\n"
"The records of a body as tuples of a kind that has seven fields.";

PyObject *
native_raw_records(PyObject *module, PyObject *arguments)
{
    PyTypeObject *type;
    Py_buffer body;
    Reader reader;
    long long count, base_offset, i;
    PyObject *records;
    if (!PyArg_ParseTuple(arguments, "O!y*LL", &PyType_Type, &type, &body, &count, &base_offset)) {
        return NULL;
    }
    records = NULL;
    if (!PyType_IsSubtype(type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "records are tuples");
    } else {
        records = PyList_New(0);
    }
    reader.data = body.buf;
    reader.at = 0;
    reader.end = body.len;
    reader.error = NULL;
    for (i = 0; records != NULL && i < count; i++) {
        PyObject *record = raw_record(type, &reader, base_offset);
        if (record == NULL || PyList_Append(records, record) < 0) {
            Py_XDECREF(record);
            Py_CLEAR(records);
            break;
        }
        Py_DECREF(record);
    }
    if (reader.error != NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, reader.error);
    }
    PyBuffer_Release(&body);
    return records;
}
