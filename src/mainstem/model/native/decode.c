/* Records of batches to columns. */

#include "growing.h"
#include "native.h"
#include "reader.h"

#define MICROSECONDS 1000

typedef struct {
    int64_t start;
    int64_t until;
    int with_headers;
    Py_ssize_t rows;
    Column offsets;
    Column timestamps;
    Column types;
    Strings keys;
    Strings values;
    Validity has_headers;
    Column header_offsets;
    Strings names;
    Strings header_values;
} Decoder;

static void
decoder_drop(Decoder *decoder)
{
    Py_CLEAR(decoder->offsets.bytes);
    Py_CLEAR(decoder->timestamps.bytes);
    Py_CLEAR(decoder->types.bytes);
    strings_drop(&decoder->keys);
    strings_drop(&decoder->values);
    Py_CLEAR(decoder->has_headers.bits.bytes);
    Py_CLEAR(decoder->header_offsets.bytes);
    strings_drop(&decoder->names);
    strings_drop(&decoder->header_values);
}

static int
decoder_open(Decoder *decoder, Py_ssize_t rows, Py_ssize_t size)
{
    int32_t zero = 0;
    if (column_open(&decoder->offsets, rows * 8) < 0 ||
        column_open(&decoder->timestamps, rows * 8) < 0 ||
        column_open(&decoder->types, rows * 4) < 0 ||
        strings_open(&decoder->keys, rows, size / 8) < 0 ||
        strings_open(&decoder->values, rows, size) < 0) {
        return -1;
    }
    if (!decoder->with_headers) {
        return 0;
    }
    if (validity_open(&decoder->has_headers, rows) < 0 ||
        column_open(&decoder->header_offsets, (rows + 1) * 4) < 0 ||
        strings_open(&decoder->names, rows, 0) < 0 ||
        strings_open(&decoder->header_values, rows, 0) < 0) {
        return -1;
    }
    return column_put(&decoder->header_offsets, &zero, 4);
}

/* Names are text by agreement only: what is not text is replaced, as Python's decoder does it. */
static int
put_name(Strings *names, const uint8_t *place, int64_t size)
{
    Py_ssize_t i;
    PyObject *text;
    const char *clean;
    Py_ssize_t clean_size;
    int done;
    for (i = 0; i < size && place[i] < 0x80; i++) {
    }
    if (i == size) {
        return strings_put(names, place, size);
    }
    text = PyUnicode_DecodeUTF8((const char *)place, (Py_ssize_t)size, "replace");
    if (text == NULL) {
        return -1;
    }
    clean = PyUnicode_AsUTF8AndSize(text, &clean_size);
    done = clean == NULL ? -1 : strings_put(names, clean, clean_size);
    Py_DECREF(text);
    return done;
}

/* The headers of one record; kept when the record is. -1: error in Python or in the reader. */
static int
decode_headers(Decoder *decoder, Reader *reader, Py_ssize_t end, int is_kept)
{
    int64_t count = read_varint(reader);
    int64_t i;
    int32_t total;
    if (reader->error != NULL) {
        return -1;
    }
    if (count < 0 || count > HEADERS_MAX) {
        reader->error = "an impossible number of headers";
        return -1;
    }
    for (i = 0; i < count; i++) {
        const uint8_t *name = NULL, *value = NULL;
        int64_t name_size = read_field(reader, end, &name);
        int64_t value_size;
        if (reader->error == NULL && name_size < 0) {
            reader->error = "a header without a name";
        }
        if (reader->error != NULL) {
            return -1;
        }
        value_size = read_field(reader, end, &value);
        if (reader->error != NULL) {
            return -1;
        }
        if (is_kept && decoder->with_headers &&
            (put_name(&decoder->names, name, name_size) < 0 ||
             strings_put(&decoder->header_values, value, value_size) < 0)) {
            return -1;
        }
    }
    if (!is_kept || !decoder->with_headers) {
        return 0;
    }
    total = (int32_t)decoder->names.validity.count;
    if (column_put(&decoder->header_offsets, &total, 4) < 0) {
        return -1;
    }
    return validity_put(&decoder->has_headers, count > 0);
}

/* Microseconds of a time in milliseconds; what does not fit is the farthest time that does. */
static inline int64_t
microseconds(int64_t base, int64_t delta)
{
    __int128 time = ((__int128)base + delta) * MICROSECONDS;
    if (time > INT64_MAX) {
        return INT64_MAX;
    }
    return time < INT64_MIN ? INT64_MIN : (int64_t)time;
}

typedef struct {
    int64_t count;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t offset_span; /* offsets that the batch covers */
    int64_t fixed_timestamp;
    int32_t is_fixed;
} BatchFacts;

static int
decode_record(Decoder *decoder, Reader *reader, const BatchFacts *facts, int64_t *last_delta)
{
    Py_ssize_t end;
    int64_t timestamp_delta, offset_delta, key_size, value_size, offset, time;
    const uint8_t *key = NULL, *value = NULL;
    int is_kept;
    if (read_bounds(reader, &end) < 0) {
        return -1;
    }
    reader->at++; /* attributes: none are defined */
    timestamp_delta = read_varint(reader);
    offset_delta = reader->error == NULL ? read_varint(reader) : 0;
    if (reader->error != NULL) {
        return -1;
    }
    if (offset_delta <= *last_delta || offset_delta >= facts->offset_span) {
        reader->error = "a record at an impossible offset";
        return -1;
    }
    *last_delta = offset_delta;
    key_size = read_field(reader, end, &key);
    value_size = reader->error == NULL ? read_field(reader, end, &value) : -1;
    if (reader->error != NULL) {
        return -1;
    }
    offset = facts->base_offset + offset_delta;
    is_kept = offset >= decoder->start && offset < decoder->until;
    if (decode_headers(decoder, reader, end, is_kept) < 0) {
        return -1;
    }
    if (reader->at != end) {
        reader->error = "a record is not as long as its fields";
        return -1;
    }
    if (!is_kept) {
        return 0;
    }
    decoder->rows++;
    time = facts->is_fixed ? microseconds(facts->fixed_timestamp, 0)
                           : microseconds(facts->base_timestamp, timestamp_delta);
    if (column_put(&decoder->offsets, &offset, 8) < 0 ||
        column_put(&decoder->timestamps, &time, 8) < 0 ||
        column_put(&decoder->types, &facts->is_fixed, 4) < 0 ||
        strings_put(&decoder->keys, key, key_size) < 0 ||
        strings_put(&decoder->values, value, value_size) < 0) {
        return -1;
    }
    return 0;
}

static int
decode_batch(Decoder *decoder, PyObject *batch)
{
    Py_buffer body;
    BatchFacts facts;
    Reader reader;
    PyObject *fixed;
    long long count, base_offset, base_timestamp, until_offset;
    int64_t i, last_delta = -1;
    int result = -1;
    if (!PyArg_ParseTuple(batch, "y*LLLOL;a batch", &body, &count, &base_offset, &base_timestamp,
                          &fixed, &until_offset)) {
        return -1;
    }
    facts.count = count;
    facts.base_offset = base_offset;
    facts.base_timestamp = base_timestamp;
    facts.is_fixed = fixed != Py_None;
    facts.fixed_timestamp = facts.is_fixed ? PyLong_AsLongLong(fixed) : 0;
    if (PyErr_Occurred()) {
        goto done;
    }
    if (base_offset < 0 || until_offset < base_offset) {
        PyErr_SetString(PyExc_ValueError, "a batch at an impossible offset");
        goto done;
    }
    facts.offset_span = until_offset - base_offset;
    reader.data = body.buf;
    reader.at = 0;
    reader.end = body.len;
    reader.error = NULL;
    for (i = 0; i < facts.count; i++) {
        if (decode_record(decoder, &reader, &facts, &last_delta) < 0) {
            break;
        }
    }
    if (reader.error == NULL && i == facts.count && reader.at != reader.end) {
        reader.error = "bytes after the last record";
    }
    if (reader.error != NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, reader.error);
    }
    result = PyErr_Occurred() ? -1 : 0;
done:
    PyBuffer_Release(&body);
    return result;
}

/* How much room the columns of some batches need at most. */
static int
measure(PyObject *batches, Py_ssize_t *rows, Py_ssize_t *size)
{
    Py_ssize_t i;
    for (i = 0; i < PySequence_Fast_GET_SIZE(batches); i++) {
        PyObject *batch = PySequence_Fast_GET_ITEM(batches, i);
        PyObject *body;
        Py_ssize_t length, count;
        if (!PyTuple_Check(batch) || PyTuple_GET_SIZE(batch) != 6) {
            PyErr_SetString(PyExc_TypeError, "a batch is a tuple of six");
            return -1;
        }
        body = PyTuple_GET_ITEM(batch, 0);
        length = PyObject_Size(body);
        count = PyNumber_AsSsize_t(PyTuple_GET_ITEM(batch, 1), PyExc_OverflowError);
        if (PyErr_Occurred()) {
            return -1;
        }
        if (count < 0 || count > length) {
            PyErr_SetString(PyExc_ValueError, "more records than bytes");
            return -1;
        }
        *rows += count;
        *size += length;
    }
    return 0;
}

const char native_decode_doc[] =
"decode(batches, start, until, with_headers, /)\n--\n\n"
"The columns of the records between two offsets.";

PyObject *
native_decode(PyObject *module, PyObject *arguments)
{
    Decoder decoder;
    PyObject *given, *batches, *headers, *result = NULL;
    long long start, until;
    Py_ssize_t rows = 0, size = 0, i;
    memset(&decoder, 0, sizeof decoder);
    if (!PyArg_ParseTuple(arguments, "OLLp", &given, &start, &until, &decoder.with_headers)) {
        return NULL;
    }
    batches = PySequence_Fast(given, "batches are a sequence");
    if (batches == NULL) {
        return NULL;
    }
    decoder.start = start;
    decoder.until = until;
    if (measure(batches, &rows, &size) < 0 || decoder_open(&decoder, rows, size) < 0) {
        goto done;
    }
    for (i = 0; i < PySequence_Fast_GET_SIZE(batches); i++) {
        if (decode_batch(&decoder, PySequence_Fast_GET_ITEM(batches, i)) < 0) {
            goto done;
        }
    }
    if (decoder.with_headers) {
        headers = Py_BuildValue("(NNNN)", validity_close(&decoder.has_headers),
                                column_close(&decoder.header_offsets),
                                strings_close(&decoder.names),
                                strings_close(&decoder.header_values));
    } else {
        headers = Py_None;
        Py_INCREF(headers);
    }
    result = Py_BuildValue("(nNNNNNN)", decoder.rows, column_close(&decoder.offsets),
                           column_close(&decoder.timestamps), column_close(&decoder.types),
                           strings_close(&decoder.keys), strings_close(&decoder.values), headers);
done:
    decoder_drop(&decoder);
    Py_DECREF(batches);
    return result;
}
