#include "quant/hopper/sine.h"

#include <cmath>

#include "quant/hopper/special.h"

namespace dodona::quant::hopper {
namespace {

// Row: top 6 bits of the position in the quadrant. Fitted to the device's outputs for all 2^23 positions: no other integers give them but
// for the last bits of a few c0.
constexpr std::array<Quadratic, 64> segments = {{
    {0, 25737, -14},
    {3372904448, 25730, -48},
    {6743801856, 25706, -76},
    {10110623744, 25668, -110},
    {13471358976, 25613, -137},
    {16823984128, 25544, -171},
    {20166463488, 25459, -201},
    {23496810496, 25358, -229},
    {26812993536, 25243, -262},
    {30113038336, 25112, -292},
    {33394933760, 24966, -322},
    {36656717824, 24805, -352},
    {39896412160, 24629, -381},
    {43112091648, 24438, -410},
    {46301777920, 24233, -441},
    {49463582720, 24013, -470},
    {52595609600, 23778, -497},
    {55695945728, 23529, -525},
    {58762719232, 23266, -553},
    {61794107392, 22989, -581},
    {64788275200, 22698, -608},
    {67743399936, 22394, -637},
    {70657728512, 22076, -664},
    {73529516032, 21744, -688},
    {76356976640, 21400, -715},
    {79138471936, 21042, -738},
    {81872281600, 20672, -763},
    {84556783616, 20290, -790},
    {87190335488, 19895, -812},
    {89771380736, 19489, -839},
    {92298346496, 19070, -859},
    {94769717248, 18640, -881},
    {97184010240, 18199, -904},
    {99539755008, 17747, -926},
    {101835546624, 17284, -946},
    {104069984256, 16811, -967},
    {106241736704, 16328, -988},
    {108349513728, 15834, -1004},
    {110391992320, 15332, -1025},
    {112367996928, 14820, -1043},
    {114276302848, 14299, -1059},
    {116115795968, 13769, -1074},
    {117885313024, 13232, -1093},
    {119583838208, 12686, -1107},
    {121210322944, 12133, -1123},
    {122763804672, 11572, -1136},
    {124243337216, 11004, -1148},
    {125648027648, 10430, -1162},
    {126977036288, 9849, -1172},
    {128229548032, 9263, -1185},
    {129404821504, 8671, -1196},
    {130502160384, 8073, -1203},
    {131520880640, 7471, -1213},
    {132460384256, 6864, -1220},
    {133320069120, 6254, -1230},
    {134099484672, 5639, -1236},
    {134798106624, 5021, -1242},
    {135415529472, 4400, -1247},
    {135951388672, 3776, -1250},
    {136405348352, 3151, -1258},
    {136777142272, 2523, -1260},
    {137066565632, 1893, -1260},
    {137273401344, 1263, -1263},
    {137397559296, 632, -1265},
}};

/// Of a turn in the last place kept: 2^25 of them.
constexpr std::uint32_t quadrant = 1u << 23;

struct Turns {
  std::uint32_t magnitude;  ///< below 2^25
  bool negative, known;
};
Turns turns_of(float x) {
  using namespace detail;
  const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit;
  if (magnitude >= infinity_bits) return {0, false, false};
  // 48 bits of product, exact: cut to 24.
  const float turns = static_cast<float>(static_cast<double>(float_of(magnitude)) * static_cast<double>(float_of(0x3E22F983u)));
  float cut = turns;
  if (static_cast<double>(turns) > static_cast<double>(float_of(magnitude)) * static_cast<double>(float_of(0x3E22F983u)))
    cut = float_of(bits_of(turns) - 1);
  const double fixed = std::trunc(static_cast<double>(cut) * 0x1p25);
  return {static_cast<std::uint32_t>(std::fmod(fixed, 0x1p25)), bits != magnitude, true};
}

float quarter(std::uint32_t position) {
  using namespace detail;
  return cut_to_float(evaluate(segments[position >> 17], position & 0x1FFFFu)) * 0x1p-37f;
}

}  // namespace

float sin(float x) {
  const Turns t = turns_of(x);
  if (!t.known) return canonical_nan();
  const std::uint32_t number = t.magnitude / quadrant, inside = t.magnitude % quadrant;
  const float value = quarter((number & 1) != 0 ? quadrant - 1 - inside : inside);
  return ((number & 2) != 0) != t.negative ? -value : value;
}

float cos(float x) {
  const Turns t = turns_of(x);
  if (!t.known) return canonical_nan();
  const std::uint32_t number = t.magnitude / quadrant, inside = t.magnitude % quadrant;
  const float value = quarter((number & 1) != 0 ? inside : quadrant - 1 - inside);
  return number == 1 || number == 2 ? -value : value;
}

}  // namespace dodona::quant::hopper
