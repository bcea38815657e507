#include "tools/fetch/journal.h"
