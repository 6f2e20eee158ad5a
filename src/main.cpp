// Start of the program; everything is in run_app.
#include "cli/app.h"

int main(int argc, char** argv) { return moetune::run_app(argc, argv, moetune::open_backend); }
