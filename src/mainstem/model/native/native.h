/* The functions of the module, each in a file of its own with what Python says about it. */

#ifndef MAINSTEM_NATIVE_H
#define MAINSTEM_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern const char native_decode_doc[];
PyObject *native_decode(PyObject *module, PyObject *arguments);

extern const char native_encode_doc[];
PyObject *native_encode(PyObject *module, PyObject *arguments);

extern const char native_partitions_doc[];
PyObject *native_partitions(PyObject *module, PyObject *arguments);

extern const char native_plain_fields_doc[];
PyObject *native_plain_fields(PyObject *module, PyObject *arguments);

extern const char native_raw_records_doc[];
PyObject *native_raw_records(PyObject *module, PyObject *arguments);

extern const char native_row_values_doc[];
PyObject *native_row_values(PyObject *module, PyObject *arguments);

#endif
