// Prints what each program gives when the build compiles it: what a vendored copy has to give.

namespace brigade::vendored {

void RunAdafactor();
void RunAdam();
void RunAdam8();
void RunAmax();
void RunBlockQuant();
void RunCast();
void RunDequantReduce();
void RunDigest();
void RunFill();
void RunGradCheck();
void RunLamb();
void RunLion();
void RunLocoQuant();
void RunMuon();
void RunOneBitLamb();
void RunOrthogonalize();
void RunReduce();
void RunSgd();
void RunSignPack();
void RunStepControl();
void RunTopK();
void RunZeroOneAdam();

}  // namespace brigade::vendored

int main() {
  using namespace brigade::vendored;
  RunAdafactor();
  RunAdam();
  RunAdam8();
  RunAmax();
  RunBlockQuant();
  RunCast();
  RunDequantReduce();
  RunDigest();
  RunFill();
  RunGradCheck();
  RunLamb();
  RunLion();
  RunLocoQuant();
  RunMuon();
  RunOneBitLamb();
  RunOrthogonalize();
  RunReduce();
  RunSgd();
  RunSignPack();
  RunStepControl();
  RunTopK();
  RunZeroOneAdam();
}
