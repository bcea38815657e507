#include "tools/fetch/options.h"

int main(int argc, char** argv) { return dsf::cli::run_main(argc, argv, dsf::fetch::run); }
