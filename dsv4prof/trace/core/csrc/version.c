/* What native.py asks before it calls anything else. */
#include "core.h"

#ifndef DSV4_STAMP
#define DSV4_STAMP ""
#endif

DSV4_PUBLIC int32_t dsv4_abi(void) { return DSV4_ABI; }

/* Which sources the library was made of; empty when nobody said. */
DSV4_PUBLIC const char *dsv4_stamp(void) { return DSV4_STAMP; }
