#pragma once
// The error feedback of LDLQ. Private to the library.
#include <span>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/exl3/hessian.h"

namespace dsf::exl3::detail {

// Block LDL of the inputs' moments as the codebook domain sees them: with A = diag(suh) and H the blockwise Hadamard,
//   R = H A moments A H + damping * mean diagonal * I = M^T D M,
// M unit upper triangular and D block diagonal in blocks of 16 rows (a row of tiles). The error E of the inner weights
// costs tr(E^T R E) = sum over blocks I of |D_I^(1/2) (E_I + sum over J > I of M_IJ E_J)|^2, so rows are quantised from
// the last to the first and rows I aim at W_I + sum of M_IJ (W_J - Q_J). Source: exl3.md section 5.1, steps 1, 3, 4, 9.
//
// suh: [in], the scales that are stored. Returns M [in, in] row-major, whose blocks on and below the diagonal mean
// nothing; empty when the moments are (no rows, or no input ever active): then there is nothing to feed back. Damping
// is doubled and added again, at most ten times, where rounding makes R indefinite. Errors: kUsage for moments of
// another size, kContent when a moment is not finite, or all of that did not help.
Result<std::vector<double>> feedback_matrix(const Hessian& moments, std::span<const double> suh, double damping);

}  // namespace dsf::exl3::detail
