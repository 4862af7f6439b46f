/* The fields of values that are flat JSON objects, each as a variant as Spark lays it out.
 *
 * Spark's own parser decides what becomes of every value, and this one knows only the plain ones:
 * whatever is rare, doubtful or wrong makes a row without fields, which Spark then parses itself.
 * So all that matters is that what is accepted here means the same there.
 */

#include "native.h"

#include "given.h"
#include "growing.h"

#define FIELDS_MAX 64      /* names are compared with each other, one by one */
#define NAME_BYTES_MAX 1024
#define STRING_BYTES_MAX (1 << 20)
#define DIGITS_MAX 18      /* such a number fits 64 bits, with or without a point */
#define DECIMAL4_DIGITS_MAX 9
#define SHORT_BYTES_MAX 63

/* The first byte of a variant: two bits of its kind, six of what is special about it. */
#define PRIMITIVE(type) ((uint8_t)((type) << 2))
#define SHORT_STRING(size) ((uint8_t)((size) << 2 | 1))
enum { V_NULL = 0, V_TRUE, V_FALSE, V_INT1, V_INT2, V_INT4, V_INT8, V_DECIMAL4 = 8, V_DECIMAL8,
       V_STRING = 16 };

/* What a step made of a text: -1 is an error of Python. */
enum { PLAIN = 0, NOT_PLAIN = 1 };

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Text;

typedef struct {
    Validity rows;
    Column lists; /* where the fields of each row end */
    Strings names;
    Strings values;
} Fields;

static inline void
skip_space(Text *text)
{
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' ||
                                    *text->at == '\r')) {
        text->at++;
    }
}

static inline int
take(Text *text, uint8_t wanted)
{
    skip_space(text);
    if (text->at >= text->end || *text->at != wanted) {
        return 0;
    }
    text->at++;
    return 1;
}

/* The bytes of one character beyond ASCII; 0 where they are not UTF-8. */
static int
wide_bytes(const uint8_t *at, const uint8_t *end)
{
    int size = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2, i;
    if (*at < 0xc2 || *at > 0xf4 || size > end - at) {
        return 0;
    }
    for (i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Longer than needed, a surrogate, or beyond the last character. */
    if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] > 0x9f) ||
        (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] > 0x8f)) {
        return 0;
    }
    return size;
}

/* A string behind its first quote: where it begins and how long it is, escapes still in it. */
static int
find_string(Text *text, const uint8_t **place, Py_ssize_t *size, int *has_escapes)
{
    const uint8_t *at = text->at, *end = text->end;
    *place = at;
    *has_escapes = 0;
    while (at < end) {
        if (*at == '"') {
            *size = at - *place;
            text->at = at + 1;
            return PLAIN;
        }
        if (*at == '\\') {
            *has_escapes = 1;
            if (end - at < 2) {
                return NOT_PLAIN;
            }
            at += 2;
        } else if (*at >= 0x80) {
            int wide = wide_bytes(at, end);
            if (wide == 0) {
                return NOT_PLAIN;
            }
            at += wide;
        } else if (*at < 0x20) {
            return NOT_PLAIN;
        } else {
            at++;
        }
    }
    return NOT_PLAIN;
}

/* The character that an escape stands for; 0 where it is none of the short ones. */
static inline uint8_t
short_escape(uint8_t letter)
{
    switch (letter) {
    case '"':
    case '\\':
    case '/':
        return letter;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return 0;
    }
}

static int
put_string(Strings *values, const uint8_t *place, Py_ssize_t size)
{
    uint8_t head[5];
    Py_ssize_t head_bytes = 1;
    if (size <= SHORT_BYTES_MAX) {
        head[0] = SHORT_STRING(size);
    } else {
        int i;
        head[0] = PRIMITIVE(V_STRING);
        for (i = 0; i < 4; i++) {
            head[1 + i] = (uint8_t)(size >> 8 * i);
        }
        head_bytes = 5;
    }
    /* The rest follows as part of the same row. */
    if (column_put(&values->data, head, head_bytes) < 0) {
        return -1;
    }
    return strings_put(values, place, size);
}

/* The number behind \\u; -1 where there are no four digits. */
static int32_t
escaped_unit(const uint8_t *at, const uint8_t *end)
{
    int32_t unit = 0;
    int i;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') {
        return -1;
    }
    for (i = 2; i < 6; i++) {
        uint8_t digit = at[i], letter = digit | 0x20;
        if (digit >= '0' && digit <= '9') {
            unit = unit << 4 | (digit - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            unit = unit << 4 | (letter - 'a' + 10);
        } else {
            return -1;
        }
    }
    return unit;
}

/* The character of one escape, or of two that stand for one, as UTF-8; how many bytes were read,
 * or 0 where JSON knows no such escape or Java would not know the character. */
static int
plain_character(const uint8_t *at, const uint8_t *end, uint8_t *plain, Py_ssize_t *used)
{
    int32_t unit, low;
    uint8_t letter = short_escape(at[1]);
    if (letter != 0) {
        plain[(*used)++] = letter;
        return 2;
    }
    unit = escaped_unit(at, end);
    if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000)) {
        return 0;
    }
    if (unit < 0x80) {
        plain[(*used)++] = (uint8_t)unit;
        return 6;
    }
    if (unit < 0x800) {
        plain[(*used)++] = (uint8_t)(0xc0 | unit >> 6);
        plain[(*used)++] = (uint8_t)(0x80 | (unit & 0x3f));
        return 6;
    }
    if (unit < 0xd800 || unit >= 0xe000) {
        plain[(*used)++] = (uint8_t)(0xe0 | unit >> 12);
        plain[(*used)++] = (uint8_t)(0x80 | (unit >> 6 & 0x3f));
        plain[(*used)++] = (uint8_t)(0x80 | (unit & 0x3f));
        return 6;
    }
    low = escaped_unit(at + 6, end);
    if (low < 0xdc00 || low >= 0xe000) {
        return 0;
    }
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    plain[(*used)++] = (uint8_t)(0xf0 | unit >> 18);
    plain[(*used)++] = (uint8_t)(0x80 | (unit >> 12 & 0x3f));
    plain[(*used)++] = (uint8_t)(0x80 | (unit >> 6 & 0x3f));
    plain[(*used)++] = (uint8_t)(0x80 | (unit & 0x3f));
    return 12;
}

static int
put_escaped_string(Strings *values, const uint8_t *place, Py_ssize_t size)
{
    const uint8_t *end = place + size;
    Py_ssize_t used = 0;
    int failed = NOT_PLAIN;
    uint8_t *plain = PyMem_Malloc((size_t)size); /* escapes are longer than what they stand for */
    if (plain == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    while (place < end) {
        if (*place != '\\') {
            plain[used++] = *place++;
        } else {
            int read = plain_character(place, end, plain, &used);
            if (read == 0) {
                goto done;
            }
            place += read;
        }
    }
    failed = put_string(values, plain, used);
done:
    PyMem_Free(plain);
    return failed;
}

static int
put_number(Strings *values, uint8_t type, int scale, int64_t number, int bytes)
{
    uint8_t variant[10];
    int used = 0, i;
    variant[used++] = PRIMITIVE(type);
    if (scale >= 0) {
        variant[used++] = (uint8_t)scale;
    }
    for (i = 0; i < bytes; i++) {
        variant[used++] = (uint8_t)((uint64_t)number >> 8 * i);
    }
    return strings_put(values, variant, used);
}

static int
put_integer(Strings *values, int64_t number)
{
    if (number == (int8_t)number) {
        return put_number(values, V_INT1, -1, number, 1);
    }
    if (number == (int16_t)number) {
        return put_number(values, V_INT2, -1, number, 2);
    }
    if (number == (int32_t)number) {
        return put_number(values, V_INT4, -1, number, 4);
    }
    return put_number(values, V_INT8, -1, number, 8);
}

static int
put_decimal(Strings *values, int64_t number, int scale)
{
    static const int64_t decimal4_max = 999999999;
    if (scale <= DECIMAL4_DIGITS_MAX && number <= decimal4_max && number >= -decimal4_max) {
        return put_number(values, V_DECIMAL4, scale, number, 4);
    }
    return put_number(values, V_DECIMAL8, scale, number, 8);
}

/* Digits, added to what came before; how many there were, or more than can be. */
static inline int
take_digits(Text *text, int64_t *number)
{
    int count = 0;
    while (text->at < text->end && *text->at >= '0' && *text->at <= '9') {
        if (++count > DIGITS_MAX) {
            return count;
        }
        *number = *number * 10 + (*text->at++ - '0');
    }
    return count;
}

static int
take_number(Text *text, Strings *values)
{
    int64_t number = 0;
    int is_negative = *text->at == '-', whole, scale;
    text->at += is_negative;
    if (text->end - text->at > 1 && text->at[0] == '0' && text->at[1] >= '0' &&
        text->at[1] <= '9') {
        return NOT_PLAIN;
    }
    whole = take_digits(text, &number);
    if (whole == 0 || whole > DIGITS_MAX) {
        return NOT_PLAIN;
    }
    if (text->at >= text->end || (*text->at != '.' && *text->at != 'e' && *text->at != 'E')) {
        return put_integer(values, is_negative ? -number : number);
    }
    if (*text->at++ != '.') {
        return NOT_PLAIN;
    }
    {
        /* No more digits than fit, whichever side of the point they are on. */
        Text rest = {text->at, text->end};
        int64_t ignored = 0;
        scale = take_digits(&rest, &ignored);
        if (scale == 0 || whole + scale > DIGITS_MAX) {
            return NOT_PLAIN;
        }
    }
    take_digits(text, &number);
    if (text->at < text->end && (*text->at == 'e' || *text->at == 'E')) {
        return NOT_PLAIN;
    }
    return put_decimal(values, is_negative ? -number : number, scale);
}

static int
take_word(Text *text, const char *word, Py_ssize_t size, Strings *values, uint8_t type)
{
    uint8_t head = PRIMITIVE(type);
    if (text->end - text->at < size || memcmp(text->at, word, (size_t)size) != 0) {
        return NOT_PLAIN;
    }
    text->at += size;
    return strings_put(values, &head, 1);
}

static int
take_value(Text *text, Strings *values)
{
    const uint8_t *place;
    Py_ssize_t size;
    int has_escapes;
    skip_space(text);
    if (text->at >= text->end) {
        return NOT_PLAIN;
    }
    switch (*text->at) {
    case '"':
        text->at++;
        if (find_string(text, &place, &size, &has_escapes) || size > STRING_BYTES_MAX) {
            return NOT_PLAIN;
        }
        return (has_escapes ? put_escaped_string : put_string)(values, place, size);
    case 't':
        return take_word(text, "true", 4, values, V_TRUE);
    case 'f':
        return take_word(text, "false", 5, values, V_FALSE);
    case 'n':
        return take_word(text, "null", 4, values, V_NULL);
    case '-':
    case '0': case '1': case '2': case '3': case '4':
    case '5': case '6': case '7': case '8': case '9':
        return take_number(text, values);
    default:
        return NOT_PLAIN;
    }
}

/* A name that no field of this row has yet; one that change events have is left to Spark. */
static int
take_name(Text *text, Strings *names, Py_ssize_t first)
{
    const uint8_t *place;
    Py_ssize_t size, other;
    int has_escapes;
    const int32_t *offsets = (const int32_t *)PyBytes_AS_STRING(names->offsets.bytes);
    if (!take(text, '"') || find_string(text, &place, &size, &has_escapes) || has_escapes ||
        size > NAME_BYTES_MAX || (size == 2 && memcmp(place, "op", 2) == 0)) {
        return NOT_PLAIN;
    }
    for (other = first; other < names->validity.count; other++) {
        if (offsets[other + 1] - offsets[other] == size &&
            memcmp(PyBytes_AS_STRING(names->data.bytes) + offsets[other], place, (size_t)size) ==
                0) {
            return NOT_PLAIN;
        }
    }
    return strings_put(names, place, size);
}

static int
take_object(Text *text, Fields *fields)
{
    Py_ssize_t first = fields->names.validity.count;
    int failed;
    if (!take(text, '{')) {
        return NOT_PLAIN;
    }
    if (!take(text, '}')) {
        do {
            if (fields->names.validity.count - first >= FIELDS_MAX) {
                return NOT_PLAIN;
            }
            failed = take_name(text, &fields->names, first);
            if (failed) {
                return failed;
            }
            if (!take(text, ':')) {
                return NOT_PLAIN;
            }
            failed = take_value(text, &fields->values);
            if (failed) {
                return failed;
            }
        } while (take(text, ','));
        if (!take(text, '}')) {
            return NOT_PLAIN;
        }
    }
    skip_space(text);
    return text->at == text->end ? PLAIN : NOT_PLAIN;
}

/* Forgets what a row has left behind that turned out not to be plain. */
static void
cut_back(Strings *strings, Py_ssize_t count)
{
    strings->offsets.used = (count + 1) * 4;
    strings->data.used = ((const int32_t *)PyBytes_AS_STRING(strings->offsets.bytes))[count];
    strings->validity.count = count;
    strings->validity.bits.used = (count + 7) / 8;
}

static int
add_row(Fields *fields, const Given *given, Py_ssize_t row)
{
    Py_ssize_t before = fields->names.validity.count, size;
    Text text;
    int32_t until;
    int failed = given_row(given, row, &text.at, &size);
    if (failed < 0) {
        return bad_column();
    }
    if (!failed) {
        text.end = text.at + size;
        failed = take_object(&text, fields);
        if (failed < 0) {
            return -1;
        }
    }
    if (failed) {
        cut_back(&fields->names, before);
        cut_back(&fields->values, before);
    }
    until = (int32_t)fields->names.validity.count;
    if (validity_put(&fields->rows, !failed) < 0) {
        return -1;
    }
    return column_put(&fields->lists, &until, 4);
}

const char native_plain_fields_doc[] =
"plain_fields(values, /)\n--\n\n"
"The fields of a column's flat JSON objects: which rows have some, where those of each row end,\n"
"their names, and their values as variants.";

PyObject *
native_plain_fields(PyObject *module, PyObject *arguments)
{
    PyObject *column, *result = NULL;
    Given given;
    Fields fields;
    Py_ssize_t row;
    int32_t zero = 0;
    memset(&fields, 0, sizeof fields);
    if (!PyArg_ParseTuple(arguments, "O", &column)) {
        return NULL;
    }
    if (given_open(&given, column) < 0 || validity_open(&fields.rows, given.rows) < 0 ||
        column_open(&fields.lists, (given.rows + 1) * 4) < 0 ||
        column_put(&fields.lists, &zero, 4) < 0 ||
        strings_open(&fields.names, given.rows * 4, given.rows * 32) < 0 ||
        strings_open(&fields.values, given.rows * 4, given.rows * 64) < 0) {
        goto done;
    }
    for (row = 0; row < given.rows; row++) {
        if (add_row(&fields, &given, row) < 0) {
            goto done;
        }
    }
    result = Py_BuildValue("(NNNN)", validity_close(&fields.rows), column_close(&fields.lists),
                           strings_close(&fields.names), strings_close(&fields.values));
done:
    given_drop(&given);
    Py_CLEAR(fields.rows.bits.bytes);
    Py_CLEAR(fields.lists.bytes);
    strings_drop(&fields.names);
    strings_drop(&fields.values);
    return result;
}
