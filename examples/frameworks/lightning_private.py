"""Train a small classifier with Lightning, with privacy."""

import lightning
import torch
from torch import nn

import discreet as dp
from discreet.learning.integrations.lightning import private_loader

torch.manual_seed(0)
inputs = torch.randn(800, 10)
labels = (inputs[:, 0] > inputs[:, 1]).long()
data = torch.utils.data.TensorDataset(inputs[:600], labels[:600])


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, batch_idx):
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layers(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


model = Classifier()
trainer = lightning.Trainer(max_epochs=5, logger=False, enable_checkpointing=False)
account = dp.Ledger("people.ledger").account("people", budget=dp.ApproxDP(8.0, 1e-5))
plan = dp.learning.Plan.for_epsilon(4.0, delta=1e-5, examples=600, batch_size=60, epochs=5, clip_norm=1.0)
trainer.fit(model, private_loader(model, plan, data, account=account))

with torch.no_grad():
    correct = (model.layers(inputs[600:]).argmax(1) == labels[600:]).float().mean()
print(f"after {trainer.global_step} steps: {correct:.0%} of the others correct")
