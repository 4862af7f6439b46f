/* The module ``mainstem.model._native``: records of v2 batches to columns and back, and rows of a
 * replication stream.
 *
 * Python calls these functions through mainstem/model/records/columns.py and mainstem/pipelines/cdc/
 * pgoutput.py and never relies on them being there: a machine without a compiler runs the Python
 * version, and the tests hold both to the same results on the same bytes. Whatever the bytes, a
 * function returns sound values or raises ValueError, which the caller turns into its own error;
 * nothing is read or written outside the buffers that were handed in or allocated here.
 */

#include "native.h"

static PyMethodDef functions[] = {
    {"decode", native_decode, METH_VARARGS, native_decode_doc},
    {"encode", native_encode, METH_VARARGS, native_encode_doc},
    {"partitions", native_partitions, METH_VARARGS, native_partitions_doc},
    {"plain_fields", native_plain_fields, METH_VARARGS, native_plain_fields_doc},
    {"raw_records", native_raw_records, METH_VARARGS, native_raw_records_doc},
    {"row_values", native_row_values, METH_VARARGS, native_row_values_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mainstem.model._native",
    "Records to columns and back; use mainstem.model.records.columns.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModule_Create(&definition);
}
