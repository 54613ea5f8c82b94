/* The inner loops for any processor. Products of matmul are rounded before they are added. */
#define TABLE_NAME table_portable
#define TABLE_TEXT "portable"
#define TABLE_VECTOR_BYTES 16
#define TABLE_HAS_FMA 0
#include "cpu/table_body.inc"
